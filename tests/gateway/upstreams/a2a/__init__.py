"""Agents as tools."""
