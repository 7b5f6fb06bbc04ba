"""Logins of people at the gateway: their tables."""

from importlib.resources import files

from registry.database.migrate import Component

LOGIN = Component("login", files("registry.login").joinpath("sql"))
