"""Turns environment, files and command line into checked, frozen settings; no message shows a
value.
"""
