"""Groups of VMs and their turns: who may be away at once, and whose turn is next."""
