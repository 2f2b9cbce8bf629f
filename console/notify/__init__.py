"""Notices: the console informs people without being asked, over sinks of the bridge's kinds."""
