"""From bytes that came in to values that are checked; pure, and strict about what it takes."""
