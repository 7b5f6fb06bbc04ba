"""Clients of the gateway, for programs of their own: they import nothing of the gateway."""
