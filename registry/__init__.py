"""Stored tools: PostgreSQL + pgvector, importers, the in-memory catalog."""
