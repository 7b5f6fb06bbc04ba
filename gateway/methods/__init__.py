"""The verbs of the protocol."""
