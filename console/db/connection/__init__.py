"""Connections to the database: opening it, its transactions, its errors and its clock."""
