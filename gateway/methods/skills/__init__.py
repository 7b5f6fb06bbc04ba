"""Skills and agents as MCP methods and tools."""
