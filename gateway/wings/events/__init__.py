"""Invocations that outlive the request, the process and the node."""
