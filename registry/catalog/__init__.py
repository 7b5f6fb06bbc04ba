"""The catalog: what a tenant is served, frozen in memory, and how it is kept current."""
