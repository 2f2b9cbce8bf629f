"""The composition root and the life cycle of one run."""
