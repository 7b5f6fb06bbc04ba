"""Jobs: their table, and the queue that starts them."""
