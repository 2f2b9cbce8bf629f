"""The schema: the tables, and the migrations that made them."""
