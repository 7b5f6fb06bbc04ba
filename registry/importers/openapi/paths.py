"""Path templates: their variables, however they are spelled, and the text that goes on the wire."""

import re
from collections.abc import Collection
from urllib.parse import quote

_TEMPLATE = re.compile(r"\{([^{}]+)\}")
_PARTS = re.compile(r"(\{[^{}]*\})")
_PATH = "/%:@!$&'()*+,;=~"  # RFC 3986, 3.3; what is percent-encoded already stays so
_QUERY = _PATH + "?"
# RFC 6570: parameters of the query, which are described as such
_QUERY_EXPANSION = re.compile(r"\{[?&][^{}]*\}")


def variables_of(path: str) -> list[str]:
    return _TEMPLATE.findall(path)


def named(path: str, names: Collection[str]) -> str:
    """`path` with each variable called as its parameter is: some templates say more about it than
    its name, as `{+path}` (RFC 6570), `{proxy+}` (AWS) and `{id:[0-9]+}` (JAX-RS) do."""
    return _TEMPLATE.sub(lambda found: _named(found, names), _QUERY_EXPANSION.sub("", path))


def _named(found: re.Match[str], names: Collection[str]) -> str:
    variable = found[1]
    if variable in names:
        return found[0]
    plain = variable.partition(":")[0].strip().lstrip("+#./;").rstrip("+*")
    return f"{{{plain}}}" if plain in names else found[0]


def rooted(path: str, notes: list[str]) -> str:
    """The path as it goes over the wire, its variables aside. A query in it stays, as some tell
    operations apart by one; a fragment, for which others use it, is never sent."""
    path, _, _ = path.partition("#")
    if not path.startswith("/"):
        notes.append("its path does not begin with a slash; one is added")
        path = f"/{path}"
    path, mark, query = path.partition("?")
    return _quoted(path, _PATH) + mark + _quoted(query, _QUERY)


def _quoted(text: str, safe: str) -> str:
    return "".join(
        part if part.startswith("{") else quote(part, safe=safe) for part in _PARTS.split(text)
    )
