"""The knowledge wing."""
