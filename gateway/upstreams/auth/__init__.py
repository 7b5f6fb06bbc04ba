"""Credentials for services: static, tokens, exchange, delegation."""
