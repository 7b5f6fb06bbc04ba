"""ASGI middleware in front of every HTTP request."""
