"""GraphQL services."""
