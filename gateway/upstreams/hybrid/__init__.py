"""Hybrid services over HTTP."""
