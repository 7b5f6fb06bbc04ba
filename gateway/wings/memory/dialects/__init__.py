"""Tools of other memories over the same rows, so that clients written for those run unchanged."""
