"""HTTP transports: bytes to messages, replies to bytes. One module for each front."""
