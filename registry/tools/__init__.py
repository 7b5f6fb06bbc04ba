"""Single tools: made by hand, described by hand, and their states."""
