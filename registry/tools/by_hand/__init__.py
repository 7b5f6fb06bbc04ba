"""Tools made by hand: their input, its conversion to a binding, and the writes."""
