"""From environment, files and command line to checked, frozen values; no domain is imported."""
