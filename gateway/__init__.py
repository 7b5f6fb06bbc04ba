"""What happens to a request: transports, protocol, methods, upstreams, guards."""
