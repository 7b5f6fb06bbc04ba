"""Catalogs: immutable snapshots of a tenant's tools and resources, and their updates."""
