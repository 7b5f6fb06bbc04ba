"""`toolgate skills` and `toolgate agents`."""
