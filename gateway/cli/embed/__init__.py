"""`toolgate embed` and `toolgate worker`."""
