"""An MCP registry (v0.1) of toolsets, and of servers of others that the operator approves."""
