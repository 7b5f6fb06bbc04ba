"""The agent: a loop over a chat model and the tools of its caller, as a wing."""
