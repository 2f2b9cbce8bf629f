"""Turns environment, files and command line into checked, frozen values; imports no
domain package.
"""
