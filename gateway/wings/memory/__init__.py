"""Memory: what agents remember, for whom, and until when."""
