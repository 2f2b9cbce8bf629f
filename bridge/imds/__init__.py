"""Sends requests to Azure's metadata service (IMDS) and reads its answers into values."""
