"""The Model Context Protocol: its revisions as rows of facts, and the messages that we read."""
