"""The rows from which the fleet's state follows, as values. Times are seconds since 1970."""
