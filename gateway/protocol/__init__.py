"""Message in, reply out. Knows methods, middleware and revisions; knows no transport, no client
and no database."""
