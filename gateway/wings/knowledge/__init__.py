"""Knowledge: documents in, evidence out, as a wing."""
