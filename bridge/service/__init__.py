"""Makes the parts of a run and connects them; the life cycle of one run."""
