"""`toolgate serve` and its process."""
