"""What happens around every message, once per message (a batch has many)."""
