"""The memory wing."""
