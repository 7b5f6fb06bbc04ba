"""What is wrong with what OAuth clients would be told."""

from collections.abc import Iterator

from config.auth import OAuth
from config.loopback import in_the_clear
from config.problem import KeyPath, Problem, Where, dotted
from config.settings import Settings

OFFLINE = "offline_access"


def oauth_conflicts(settings: Settings, where: Where) -> Iterator[Problem]:
    for name, text in (*_open_servers(settings.oauth), *_foreign_scopes(settings.oauth)):
        key: KeyPath = ("oauth", name)
        yield Problem(where(key), dotted(key), text)


def _open_servers(oauth: OAuth) -> Iterator[tuple[str, str]]:
    """RFC 8414, section 2, and RFC 9728, section 2: logins travel there."""
    for url in filter(in_the_clear, oauth.authorization_servers):
        yield (
            "authorization_servers",
            f"expected https:// URLs, but for servers on loopback, found {url}",
        )


def _foreign_scopes(oauth: OAuth) -> Iterator[tuple[str, str]]:
    for name in ("scopes_supported", "required_scopes"):
        if OFFLINE in getattr(oauth, name):
            yield name, f"expected no {OFFLINE}, which is about clients; they add it themselves"
