"""Registries of MCP servers: their entries, and the sources and programs that these become."""
