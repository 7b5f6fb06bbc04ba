"""Tools made by hand: what can be said of them, how that becomes a call, and how it is written."""
