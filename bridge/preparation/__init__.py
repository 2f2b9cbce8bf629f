"""Prepares this VM before an event starts: once, and only when a person, a rule, a command or a
deadline asks for it.
"""
