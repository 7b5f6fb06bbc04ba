"""Names: of tools, of resources, of schema keywords."""
