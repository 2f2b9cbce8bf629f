"""From what a person asks for to a signed command and its end: two tables, and what obeys them."""
