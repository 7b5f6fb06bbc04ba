"""`toolgate export` and `toolgate apply`: everything that is stored, as one file."""
