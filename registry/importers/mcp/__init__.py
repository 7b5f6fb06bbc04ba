"""MCP server lists to tools and items: validated and named. Pure.

An invalid definition costs only itself, and the outcome states why; a useless member of one is
dropped. The rest is passed through unchanged.
"""

from registry.importers.mcp.tools_and_items import read_snapshot

__all__ = ["read_snapshot"]
