"""The request path: transports, protocol, methods, upstreams, guards."""
