"""Documents to tools. Pure: what they need of the network or the disk is handed to them."""
