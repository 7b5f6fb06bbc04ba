"""Requests to REST services: the wire format of a binding and the arguments of a call."""
