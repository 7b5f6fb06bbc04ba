"""Evaluation of tool search: requests with known relevant tools are searched and scored.

It measures the product's own search on its own tables. Knows no command line.
"""
