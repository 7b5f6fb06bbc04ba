"""Sources: one import, from a location to rows, its versions and its pins."""
