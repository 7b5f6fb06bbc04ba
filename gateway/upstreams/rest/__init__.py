"""Requests to REST services: what a binding and the arguments of a call put on the wire."""
