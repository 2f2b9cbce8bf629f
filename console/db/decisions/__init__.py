"""The rows of decisions and of what follows from them: commands, turns and assignments."""
