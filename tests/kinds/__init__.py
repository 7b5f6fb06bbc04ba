"""A kind of tool that the product does not know: see `tests.kinds.parrot`."""
