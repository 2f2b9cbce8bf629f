"""The rows of sources: how far each was read, when it was connected, what was no record."""
