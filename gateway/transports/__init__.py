"""How bytes become messages and replies become bytes. One module for each front."""
