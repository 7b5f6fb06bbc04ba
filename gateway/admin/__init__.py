"""What operators ask the gateway."""
