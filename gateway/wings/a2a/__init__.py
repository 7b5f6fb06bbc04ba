"""Agents that are served to other agents by A2A."""
