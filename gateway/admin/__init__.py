"""Admin API and health endpoints for operators."""
