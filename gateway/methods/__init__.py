"""Handlers of the protocol's methods."""
