"""Notifications: targets, incidents and messages."""
