"""Notices: the console tells people by itself, over sinks of the bridge's kinds."""
