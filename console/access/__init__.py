"""Login modes, sessions, tokens and roles: the callers of the console, and their rights."""
