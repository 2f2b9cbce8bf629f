"""Login modes, sessions, tokens and roles: who calls the console, and what they may do."""
