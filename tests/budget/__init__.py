"""Budgets of the hot path: what one request may cost, free of noise."""
