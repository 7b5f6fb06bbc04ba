"""Rate-limit key of a client address: IPv4 whole, IPv6 by its /64 network."""

from ipaddress import IPv6Address


def network(address: str) -> str:
    """The first 64 bits of IPv6: one subscriber has the whole /64 (RFC 4291, 2.5.4)."""
    if ":" not in address:
        return address
    try:
        found = IPv6Address(address)
    except ValueError:
        return address
    return str(found.ipv4_mapped or IPv6Address(int(found) >> 64 << 64))
