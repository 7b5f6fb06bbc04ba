"""Agents behind the gateway (Agent2Agent): each is one tool."""
