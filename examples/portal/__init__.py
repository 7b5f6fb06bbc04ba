"""A service of the legacy portal's kind, and the clients that such a portal has."""
