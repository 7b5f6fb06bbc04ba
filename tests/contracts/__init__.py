"""One suite per Protocol that has several implementations, run over all of them."""
