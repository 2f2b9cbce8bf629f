"""A stand-in for IMDS. It knows only Azure's side, and imports nothing of the bridge."""
