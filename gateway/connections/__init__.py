"""Connections: people's own accounts at the services behind the gateway, asked for in the middle of
a call."""
