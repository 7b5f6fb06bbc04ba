"""What things are: frozen types and pure codecs. No I/O, no clock, no framework."""
