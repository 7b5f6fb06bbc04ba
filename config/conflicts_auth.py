"""What is wrong with who may come in: issuers, their keys, whom their tokens are for."""

from collections.abc import Iterator

from config.auth import DEVELOPMENT_ISSUER, RESERVED_ISSUER, Auth, IssuerSettings
from config.loopback import in_the_clear
from config.problem import KeyPath, Problem, Where, dotted
from config.settings import Settings

KEYS = ("key_file", "jwks_file", "jwks_url")

Found = Iterator[tuple[KeyPath, str]]


def auth_conflicts(settings: Settings, where: Where) -> Iterator[Problem]:
    """Nothing is asked of what nobody uses, while `auth.mode` is none."""
    auth = settings.auth
    found: list[tuple[KeyPath, str]] = []
    if auth.mode == "keys":
        found += _no_keys(auth)
    elif auth.mode == "jwt":
        found += [*_key_sources(auth), *_names(auth), *_tenants(auth), *_times(auth)]
        found += _audiences(settings)
    for below, text in found:
        key = ("auth", *below)
        yield Problem(where(key, ("auth", "mode")), dotted(key), text)


def _no_keys(auth: Auth) -> Found:
    if not auth.api_keys:
        yield ("mode",), "expected auth.api_keys with it, or nobody could come in"


def _key_sources(auth: Auth) -> Found:
    """Exactly one for each issuer."""
    given = [f"auth.{key}" for key in KEYS if getattr(auth, key)]
    wanted = ", ".join(f"auth.{key}" for key in KEYS)
    if len(given) > 1:
        yield ("mode",), f"expected one of {wanted} with it, found {' and '.join(given)}"
    elif not given and not auth.issuers and not auth.development_secret:
        others = "auth.issuers or auth.development_secret"
        yield ("mode",), f"expected {wanted}, {others} with it, found none of them"
    elif not given and auth.issuer:
        yield ("issuer",), f"expected one of {wanted} beside it: the key of its tokens"
    for name, issuer in auth.issuers.items():
        given = [key for key in KEYS if getattr(issuer, key)]
        if len(given) != 1:
            told = " and ".join(given) or "none of them"
            yield ("issuers", name), f"expected one of {', '.join(KEYS)}, found {told}"
    for path, url in _jwks_urls(auth):
        if in_the_clear(url):
            yield path, f"expected an https:// URL, but for a server on loopback, found {url}"


def _jwks_urls(auth: Auth) -> Iterator[tuple[KeyPath, str]]:
    for path, issuer in _all(auth):
        if issuer.jwks_url:
            yield (*path, "jwks_url"), issuer.jwks_url


def _names(auth: Auth) -> Found:
    """The `iss` of a token has to say whose it is before any key is tried."""
    seen: dict[str, str] = {DEVELOPMENT_ISSUER: "`toolgate token mint`"}
    for path, issuer in _all(auth):
        if not issuer.issuer:
            if path or auth.issuers:
                text = "expected the `iss` of its tokens: there are several issuers"
                yield (*path, "issuer"), text
        elif issuer.issuer in seen:
            yield (*path, "issuer"), f"expected one that is not that of {seen[issuer.issuer]}"
        else:
            seen[issuer.issuer] = dotted(("auth", *path))
    if RESERVED_ISSUER in auth.issuers:
        text = f"expected another name: {RESERVED_ISSUER}:NAME is who has an API key"
        yield ("issuers", RESERVED_ISSUER), text


def _tenants(auth: Auth) -> Found:
    for path, issuer in _all(auth):
        if issuer.tenants and not issuer.tenant_claim:
            yield (*path, "tenants"), "expected tenant_claim beside it, whose values these are"
        if isinstance(issuer, IssuerSettings) and issuer.tenant and issuer.tenant_claim:
            yield (*path, "tenant"), "expected tenant or tenant_claim, found both"


def _audiences(settings: Settings) -> Found:
    auth = settings.auth
    if auth.bind_audience == "off":
        return
    if not settings.server.public_url:
        yield ("bind_audience",), "expected server.public_url with it, which tokens have to name"
    if auth.bind_audience == "endpoint":
        for path, issuer in (((), auth), *_all(auth)):
            if issuer.audience:
                text = "expected none with auth.bind_audience: endpoint, which says what `aud` is"
                yield (*path, "audience"), text
                return


def _times(auth: Auth) -> Found:
    if auth.jwks_stale_s < auth.jwks_ttl_s:
        text = f"expected at least auth.jwks_ttl_s ({auth.jwks_ttl_s:g}), after which keys are"
        yield ("jwks_stale_s",), f"{text} fetched again, found {auth.jwks_stale_s:g}"


def _all(auth: Auth) -> Iterator[tuple[KeyPath, Auth | IssuerSettings]]:
    """Every issuer with a key, and where it stands below `auth`."""
    if any(getattr(auth, key) for key in KEYS):
        yield (), auth
    for name, issuer in auth.issuers.items():
        yield ("issuers", name), issuer
