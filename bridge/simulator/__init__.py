"""A stand-in for IMDS. It knows Azure's side only, and imports nothing of the bridge."""
