"""How records come in: the sources, and the one writer that commits what they bring."""
