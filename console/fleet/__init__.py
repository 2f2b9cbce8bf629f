"""What is known of a fleet, as pure functions of rows and `now`: contact, condition, events.

It never reads a clock, a database or a network.
"""
