"""What the bridge, the console and the sinks all need, and what is about no sink."""
