"""From environment, files and command line to checked, frozen values.

It imports no domain package.
"""
