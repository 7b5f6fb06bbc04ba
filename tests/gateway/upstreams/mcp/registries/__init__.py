"""Registries of MCP servers."""
