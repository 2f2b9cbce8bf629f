"""Who speaks to the console, and what they may do: login modes, sessions, tokens, roles."""
