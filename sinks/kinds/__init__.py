"""The kinds of sinks: one folder or file for each. No kind imports another."""
