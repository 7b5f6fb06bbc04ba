"""Configuration: settings read once, validated, frozen."""
