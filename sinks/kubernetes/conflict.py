"""The conflict that the API server reports if two change one object at the same time.

It stands apart from the requests: these need the extra's library, and the sink is known without it.
"""


class ConflictError(Exception):
    """Somebody else changed the node in between: read it again."""
