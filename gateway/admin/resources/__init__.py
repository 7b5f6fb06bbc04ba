"""Operations of the admin API, one module per resource type."""
