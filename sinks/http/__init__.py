"""HTTP for the sinks that use it. It is not a sink, and does not know records."""
