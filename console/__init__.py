"""The console: reads the records of a whole fleet, shows what is coming, and who is silent.

It knows a bridge by its records only. It must never import `bridge`, but for the module that makes
tokens.
"""
