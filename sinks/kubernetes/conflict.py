"""The conflict that the API server reports if two clients change one object at the same time.

It has a module of its own because the requests need the extra's library, and the sink must be
importable without it.
"""


class ConflictError(Exception):
    """The node was changed since it was read, so it has to be read again."""
