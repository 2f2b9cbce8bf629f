"""The parts of one run of the console, and its start and end."""
