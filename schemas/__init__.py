"""Domain types and codecs: frozen structs, pure functions. No I/O, no clock, no framework."""
