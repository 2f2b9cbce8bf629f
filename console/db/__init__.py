"""The database: SQLite or PostgreSQL, with the same tables. Only this package uses SQLAlchemy."""
