"""How it is set up: settings read once, validated, frozen."""
