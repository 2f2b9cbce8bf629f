"""The facts from which turns are decided, read in one transaction."""
