"""Accounts of people at the services behind the gateway: their tables."""

from importlib.resources import files

from registry.database.migrate import Component

CONNECTIONS = Component("connections", files("registry.connections").joinpath("sql"))
