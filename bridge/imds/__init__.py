"""Speaks with Azure's metadata service (IMDS) and reads its answers into values."""
