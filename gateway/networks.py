"""Whose an address is, for counting: who has one may have many."""

from ipaddress import IPv6Address


def network(address: str) -> str:
    """Of IPv6 the first 64 bits: whoever has one address there has all (RFC 4291, 2.5.4)."""
    if ":" not in address:
        return address
    try:
        found = IPv6Address(address)
    except ValueError:
        return address
    return str(found.ipv4_mapped or IPv6Address(int(found) >> 64 << 64))
