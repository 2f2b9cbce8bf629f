"""HTTP as the sinks speak it. It is no sink, and knows of no record."""
