"""Middleware around every message, run once per message (a batch has many)."""
