"""Chat models: dialects of providers, assembly of their streams, usage and prices, requests."""
