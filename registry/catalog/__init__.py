"""The catalog: an immutable snapshot of a tenant's tools and resources, and its updates."""
