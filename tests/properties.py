"""How many examples a property is tested with."""

import os

LEAST = 15
SHARE = float(os.environ.get("PROPERTY_EXAMPLES", "0.25"))


def examples(count: int) -> int:
    """A quarter of `count`, as the next run draws others; all before a release, which sets
    PROPERTY_EXAMPLES=1. (Variables with the prefix TOOLGATE_ are settings of the gateways that
    tests start.)"""
    return min(count, max(LEAST, round(count * SHARE)))
