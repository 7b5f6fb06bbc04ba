"""A wing that the product does not know: see `tests.wings.toy`."""
