"""Configuration: settings are read once, validated and frozen."""
