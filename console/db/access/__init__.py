"""The rows of access: tokens, sessions and enrolments."""
