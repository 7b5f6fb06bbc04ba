"""What every HTTP request passes first, as plain ASGI middleware."""
