"""Skills: instructions for a kind of work with the tools for it, and the agents that have them."""
