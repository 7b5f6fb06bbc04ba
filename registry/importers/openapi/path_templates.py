"""Path templates: their variables, reduced to names that a URL can be made from."""

import re
from collections.abc import Collection
from urllib.parse import quote

from registry.importers.openapi.document import SkipOperation

# braces in a placeholder belong to a regular expression, as in {id:[0-9]{3}}
_TEMPLATE = re.compile(r"\{((?:[^{}]|\{[^{}]*\})+)\}")
_PARTS = re.compile(r"(\{(?:[^{}]|\{[^{}]*\})*\})")
_COLON = re.compile(r"(?<=/):([A-Za-z_][A-Za-z0-9_]*)\??(?=/|$)")  # /:id, of Express and others
_NAME = re.compile(r"[A-Za-z_$][\w.$-]*")
_PATH = "/%:@!$&'()*+,;=~"  # RFC 3986, 3.3; percent-encoded characters are kept
_QUERY = _PATH + "?"
# RFC 6570: query parameters, described as such
_QUERY_EXPANSION = re.compile(r"\{[?&][^{}]*\}")


def variables_of(path: str) -> list[str]:
    return _TEMPLATE.findall(path)


def reduce_variables(path: str, names: Collection[str]) -> str:
    """`path` with its variables reduced to parameter names: some templates add to the name, as
    `{+path}` (RFC 6570), `{proxy+}` (AWS), `{id:[0-9]+}` (JAX-RS), `{*rest}`, `{id?}` (ASP.NET) and
    `/:id` (Express) do. Raises `SkipOperation` for one without a name."""
    path = _COLON.sub(r"{\1}", _QUERY_EXPANSION.sub("", path))
    return _TEMPLATE.sub(lambda match: _reduce_variable(match, names), path)


def _reduce_variable(match: re.Match[str], names: Collection[str]) -> str:
    variable = match[1]
    if variable in names:
        return match[0]
    plain = variable.partition(":")[0].strip().lstrip("+#./;*").rstrip("+*?")
    if plain in names or _NAME.fullmatch(plain):
        return f"{{{plain}}}"
    raise SkipOperation(f"its path has the placeholder {match[0][:100]}, which names no parameter")


def root_path(path: str, notes: list[str]) -> str:
    """The path as sent, with its variables. A query stays, as some use it to distinguish
    operations; a fragment, used by others for the same, is never sent."""
    path, _, _ = path.partition("#")
    if not path.startswith("/"):
        notes.append("its path does not begin with a slash; one is added")
        path = f"/{path}"
    path, mark, query = path.partition("?")
    return _quote_path(path, _PATH) + mark + _quote_path(query, _QUERY)


def _quote_path(text: str, safe: str) -> str:
    return "".join(
        part if part.startswith("{") else quote(part, safe=safe) for part in _PARTS.split(text)
    )
