"""The sink of tables in PostgreSQL: rows, positions and dead letters are one transaction."""
