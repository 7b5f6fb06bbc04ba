"""Programs over tools, as a wing: a model writes code whose calls are calls of its caller."""
