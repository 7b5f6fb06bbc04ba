"""An authorization server, a service that takes its tokens only, and the gateway between them."""
