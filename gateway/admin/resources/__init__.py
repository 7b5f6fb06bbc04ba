"""The operations, a module for each kind of thing."""
