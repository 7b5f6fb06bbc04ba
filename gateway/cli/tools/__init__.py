"""`toolgate tools`."""
