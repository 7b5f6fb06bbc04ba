"""Refunds, as the handbook has them."""

NEEDS_TWO = 500  # euros


def approvers_needed(euros: float) -> int:
    """How many persons approve a refund of this amount."""
    return 2 if euros > NEEDS_TWO else 1
