"""Issuers of tokens as identifiers: where their metadata are, and when two are the same."""

from urllib.parse import urlsplit


def well_known(issuer: str) -> list[str]:
    """Metadata locations: RFC 8414, section 3.1, and both forms of OpenID Connect Discovery 1.0
    (section 5)."""
    parts = urlsplit(issuer.rstrip("/"))
    origin, path = f"{parts.scheme}://{parts.netloc}", parts.path
    places = [
        f"/.well-known/oauth-authorization-server{path}",
        f"/.well-known/openid-configuration{path}",
        f"{path}/.well-known/openid-configuration",
    ]
    return [origin + place for place in dict.fromkeys(places)]


def is_same_issuer(issuer: str, owner: str) -> bool:
    """Whether metadata of `owner` may be at the places of `issuer` (RFC 8414, section 3.3): they
    are identical, but for an empty path, which Google writes as `/` in one place only."""
    return _with_path(issuer) == _with_path(owner)


def _with_path(issuer: str) -> str:
    return f"{issuer}/" if issuer.count("/") == 2 else issuer
