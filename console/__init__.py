"""The console: reads the records of a whole fleet, shows what is coming, and which VMs are silent.

It knows bridges only by their records. It must not import `bridge`, except for the module that
makes tokens.
"""
