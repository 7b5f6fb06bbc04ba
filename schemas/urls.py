"""URLs in texts. Imports nothing that takes time to load: every command shows errors."""

import re

# punctuation belongs to the query unless a blank or the end follows it
_URL_QUERY = re.compile(
    r"(https?://[^\s?#\"'<>]*)\?(?:[^\s\"'<>,;:]|[,;:](?=[^\s\"'<>]))*", re.IGNORECASE
)
_CREDENTIALS = re.compile(r"//.*@")
_QUERY = re.compile(r"\?.*", re.DOTALL)


def without_credentials(text: str) -> str:
    """A URL without user, password and query; other text as it is."""
    return _QUERY.sub("?***", _CREDENTIALS.sub("//***@", text)) if "://" in text else text


def without_queries(text: str) -> str:
    """`text` without the queries of the URLs in it, as some contain tokens."""
    return _URL_QUERY.sub(r"\1?***", text)


def is_below(address: str, base: str) -> bool:
    """Whether a URL is `base`, or below it; nothing is below ""."""
    url = base.lower().rstrip("/")
    return bool(url) and f"{address.lower().rstrip('/')}/".startswith(f"{url}/")
