"""From environment, files and command line to checked, frozen values; no message shows a value."""
