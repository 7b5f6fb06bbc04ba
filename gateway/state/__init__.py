"""State that outlives a request: sessions, streams, subscriptions, counters."""
