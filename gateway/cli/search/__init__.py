"""`toolgate search`."""
