"""The gateway as an OAuth client of the services behind it: how it finds their authorization
servers, how it is known there, and how it gets, renews and gives back tokens.

The package knows no routes, sources or rows of connections: these are handed in.
"""
