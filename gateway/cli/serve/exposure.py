"""The checks before listening: an address that strangers reach needs authentication, and its tokens
an audience."""

from config.access import Auth
from config.networks import is_loopback
from gateway.cli.common.failure import USAGE, fail

OPEN = (
    "auth.mode is none and auth.allow_public is true: whoever reaches the gateway may call "
    "everything, unless what stands in front of it asks for credentials"
)
ANY_AUDIENCE = (
    "auth.audience is empty, so tokens that were made for other services are good here too: name "
    "the `aud` of yours, or set auth.bind_audience"
)


def check_exposure(host: str, auth: Auth) -> None:
    """Fail if calls would be open to everybody, or to holders of a development secret."""
    if is_loopback(host):
        return
    if auth.mode == "none":
        fail(
            f"refusing to listen on {host}: auth.mode is none, so whoever reaches it could call "
            "everything. Set auth.mode: jwt with auth.key_file, auth.jwks_file or auth.jwks_url, "
            "or auth.mode: keys, and server.allowed_hosts to the names that clients use; or listen "
            "on 127.0.0.1 and put a proxy that authenticates in front",
            USAGE,
        )
    if auth.development_secret:
        fail(
            f"refusing to listen on {host}: auth.development_secret is set, and whoever knows it "
            "can make tokens for everything. Take it out and use the key of an issuer "
            "(auth.key_file, auth.jwks_file, auth.jwks_url); or listen on 127.0.0.1",
            USAGE,
        )


def takes_any_audience(auth: Auth) -> bool:
    """Whether some issuer accepts tokens for any audience."""
    if auth.mode != "jwt" or auth.bind_audience != "off" or auth.audience:
        return False
    own = bool(auth.key_file or auth.jwks_file or auth.jwks_url)
    return own or not all(issuer.audience for issuer in auth.issuers.values())
