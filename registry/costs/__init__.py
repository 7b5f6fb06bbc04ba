"""Costs as rows: tokens and money of each day."""
