"""Notices: the console informs people by itself, over sinks of the bridge's kinds."""
