"""HTTP client: connections, pools, deadlines, server-sent events. Knows no source and no tool."""
