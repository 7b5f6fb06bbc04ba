"""What outlives a request: sessions, and who wants to hear what."""
