"""Documents from sources, and their text."""
