"""HTTP to services: connection pools, TLS, deadlines, downloads and uploads."""
