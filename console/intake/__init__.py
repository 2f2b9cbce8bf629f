"""The one way into the store: a bounded queue, and one thread that commits many at a time."""
