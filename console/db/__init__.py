"""The database: SQLite or PostgreSQL, from one set of tables; the only package with SQLAlchemy."""
