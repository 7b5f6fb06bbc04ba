"""Other MCP servers to tools and items: what their lists say, checked and named. Pure.

A definition that breaks the protocol costs that one thing and nothing else, and the outcome says
why; a member of it that is of no use is left out. What is left is carried as it came.
"""

from registry.importers.mcp.read import read_snapshot

__all__ = ["read_snapshot"]
