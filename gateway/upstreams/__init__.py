"""Upstreams: executors of tool calls, one module for each kind of binding."""
