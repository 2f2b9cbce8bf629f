"""The pytest plugin: an IMDS of your own for tests."""
