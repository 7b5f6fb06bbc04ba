"""Hooks: code of the operator, in Python or behind a signed webhook, at points of each call."""
