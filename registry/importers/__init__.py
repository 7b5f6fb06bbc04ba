"""Importers: documents to tools. Pure: callers supply everything from the network or the disk."""
