"""Commands that call a running gateway."""
