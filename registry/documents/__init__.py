"""Documents from outside, read safely: guarded fetches, archives and folders, stored bundles."""
