"""A small REST service with real state, to try the gateway on."""
