"""What is known of a fleet, as pure functions of rows and `now`: contact, condition, events.

Nothing here reads a clock, a database or a network.
"""
