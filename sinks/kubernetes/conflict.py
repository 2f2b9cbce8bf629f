"""What the API server says if two change one object at the same time."""


class ConflictError(Exception):
    """Somebody else changed the node in between: read it again."""
