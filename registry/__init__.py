"""What tools exist: PostgreSQL + pgvector, importers, the in-memory catalog."""
