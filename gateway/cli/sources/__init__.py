"""`toolgate sources`."""
