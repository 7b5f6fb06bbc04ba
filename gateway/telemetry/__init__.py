"""Measurements of messages and calls as plain values; exporters read them."""
