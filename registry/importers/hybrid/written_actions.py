"""The raw actions of a description, in either of its two forms.

Unknown keys are reported, because a typo must not silently disable a restriction: `scpoe: portal.w`
would open an action to all, and so would a `scope` that slipped into `request`. Keys that resemble
a restriction are marked; any other unknown key is harmless.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, NamedTuple

from schemas.errors import ImportRejected
from schemas.hybrid import split

_DESCRIPTIVE_KEYS = frozenset(("description", "title", "summary", "handler", "example", "examples"))
DOCUMENT_KEYS = _DESCRIPTIVE_KEYS | {"host", "service", "action", "schemas"}
_ACTION_KEYS = _DESCRIPTIVE_KEYS | {"name", "version", "scope", "skipAuth", "request", "response"}
_OLD_ACTION_KEYS = _DESCRIPTIVE_KEYS | {"schema", "scope", "skipAuth"}
_MESSAGE_KEYS = _DESCRIPTIVE_KEYS | {"schema"}  # of `request` and `response`

_RESTRICTIONS = {"scope": "scope", "skipauth": "skipAuth"}
_SIMILARITY = 0.7  # similarity, of 1: scpoe, scop and scopes are like scope, schema is not
_KEY_LENGTH = 60  # characters of a key that are shown, and compared


class KeyFinding(NamedTuple):
    text: str
    restricts: bool = False  # probably meant to restrict callers


def action_findings(node: Mapping[str, Any]) -> Iterator[KeyFinding]:
    """Unknown or misspelled keys of one item of the list `action`."""
    yield from _findings(node, _ACTION_KEYS)
    for name in ("request", "response"):
        message = node.get(name)
        if isinstance(message, dict):
            yield from _findings(message, _MESSAGE_KEYS, f"{name}.")


def old_action_findings(node: Mapping[str, Any]) -> Iterator[KeyFinding]:
    """The same in a schema.json."""
    return _findings(node, _OLD_ACTION_KEYS)


def unknown_keys(node: Mapping[str, Any], keys: frozenset[str]) -> Iterator[str]:
    return (finding.text for finding in _findings(node, keys))


def _findings(
    node: Mapping[str, Any], keys: frozenset[str], where: str = ""
) -> Iterator[KeyFinding]:
    for key in map(str, node):
        if key in keys or key.lower().startswith("x-"):
            continue
        restriction = _restriction(key)
        meant = restriction or _nearest(key, keys)
        hint = f" (did you mean {meant}?)" if meant else ""
        yield KeyFinding(f"unknown key '{where}{key[:_KEY_LENGTH]}'{hint}", restriction is not None)


def _restriction(key: str) -> str | None:
    letters = _letters(key)
    for plain, name in _RESTRICTIONS.items():
        if plain in letters or get_close_matches(letters, [plain], cutoff=_SIMILARITY):
            return name
    return None


def _nearest(key: str, keys: frozenset[str]) -> str | None:
    by_letters = {_letters(name): name for name in keys}
    near = get_close_matches(_letters(key), by_letters, n=1, cutoff=_SIMILARITY)
    return by_letters[near[0]] if near else None


def _letters(key: str) -> str:
    """Normalized form for comparison: skip_auth equals skipAuth."""
    return key[:_KEY_LENGTH].replace("_", "").replace("-", "").casefold()


ID_LIMIT = 512  # bytes; an index row of PostgreSQL holds no more than 2,700, with other ids too

_ACTION_EXPECTED = (
    "expected a hybrid spec.yaml (host, service and a list `action`) or schema.json "
    "(host/service/action/version to schema and scope)"
)
_KINDS = {dict: "a mapping", list: "a list", str: "text", bool: "true or false", int: "a number",
          float: "a number", type(None): "nothing"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class WrittenAction:
    """One action as written."""

    label: str  # its id, if any
    node: Mapping[str, Any]
    request: Any = None  # its schema; None: it has none
    inline: bool = False  # the schema stands where light-hybrid-4j expects a reference
    problem: str | None = None  # why it is unusable
    notes: tuple[str, ...] = ()  # other findings


@dataclass(frozen=True, slots=True)
class WrittenService:
    """A whole description as written."""

    items: tuple[WrittenAction, ...]
    shared: Mapping[str, Any]  # schemas by name
    notes: tuple[str, ...] = ()  # on the description as a whole


def read_document(document: Any) -> WrittenService:
    """Parse either form. Raises ImportRejected for anything else."""
    if not isinstance(document, dict):
        raise ImportRejected(f"{_ACTION_EXPECTED}, found {kind(document)}")
    if "action" not in document and not {"host", "service"} <= document.keys():
        return WrittenService(tuple(_schema_items(document)), {})
    shared, items = _shared_schemas(document), tuple(_spec_items(document))
    return WrittenService(items, shared, tuple(unknown_keys(document, DOCUMENT_KEYS)))


def size_of(id_: str) -> int:
    return len(id_.encode("utf-8", "surrogatepass"))


def text(value: Any) -> str:
    """The value as text; `version: 1.0` is a number in YAML."""
    plain = isinstance(value, str | int | float) and not isinstance(value, bool)
    return str(value).strip() if plain else ""


def kind(value: Any) -> str:
    return _KINDS.get(type(value), type(value).__name__)


def _shared_schemas(document: Mapping[str, Any]) -> Mapping[str, Any]:
    schemas = document.get("schemas") or {}
    if not isinstance(schemas, dict):
        raise ImportRejected(f"schemas: expected a mapping of names, found {kind(schemas)}")
    return {str(name): schema for name, schema in schemas.items()}


def _spec_items(document: Mapping[str, Any]) -> Iterator[WrittenAction]:
    host, service = (_part(document, name) for name in ("host", "service"))
    listed = document.get("action")
    if not isinstance(listed, list):
        raise ImportRejected(f"action: expected a list of actions, found {kind(listed)}")
    for number, node in enumerate(listed, 1):
        yield _spec_item(f"{host}/{service}", f"action {number}", node)


def _spec_item(service: str, label: str, node: Any) -> WrittenAction:
    if not isinstance(node, dict):
        problem = f"expected a mapping with name and version, found {kind(node)}"
        return WrittenAction(label, {}, problem=problem)
    name, version = text(node.get("name")), text(node.get("version"))
    if not name or not version:
        problem = f"it has no {'version' if name else 'name'}"
        return WrittenAction(f"{label} {name or version}".strip(), node, problem=problem)
    request = node.get("request")
    schema = request.get("schema") if isinstance(request, dict) else request
    findings = list(action_findings(node))
    if isinstance(node["version"], float):  # perhaps written as 1.10
        findings.append(KeyFinding(f"version is a number: taken as {version!r}; quote it"))
    return _item(f"{service}/{name}/{version}", node, schema, True, findings=findings)


def _schema_items(document: Mapping[str, Any]) -> Iterator[WrittenAction]:
    if not any(isinstance(id_, str) and id_.count("/") == 3 for id_ in document):
        openapi = document.keys() & {"openapi", "swagger"}
        hint = "; this is an OpenAPI description: `toolgate import openapi` reads it"
        raise ImportRejected(f"{_ACTION_EXPECTED}{hint if openapi else ''}")
    for id_, node in document.items():
        if not isinstance(node, dict):
            problem = f"expected a mapping with schema and scope, found {kind(node)}"
            yield WrittenAction(str(id_), {}, problem=problem)
        elif split(str(id_)) is None:
            yield WrittenAction(
                str(id_), node, problem="its key is not host/service/action/version"
            )
        else:
            findings = list(old_action_findings(node))
            yield _item(str(id_), node, node.get("schema"), False, findings=findings)


def _item(
    id_: str, node: Mapping[str, Any], request: Any, inline: bool, *, findings: list[KeyFinding]
) -> WrittenAction:
    if size_of(id_) > ID_LIMIT:
        problem = f"its id has {size_of(id_)} bytes, more than {ID_LIMIT}"
        return WrittenAction(f"{id_[:60]}…", node, problem=problem)
    mistaken = next((finding.text for finding in findings if finding.restricts), None)
    if unclear := _unclear(node.get("scope")) or mistaken:  # must not be open to all callers
        return WrittenAction(id_, node, problem=unclear)
    return WrittenAction(
        id_, node, request, inline, notes=tuple(finding.text for finding in findings)
    )


def _unclear(scope: Any) -> str | None:
    listed = scope if isinstance(scope, list) else [scope]
    for member in listed:
        if not isinstance(member, str) and (member is not None or listed is scope):
            return f"scope: expected text, found {kind(member)}"
    return None


def _part(document: Mapping[str, Any], name: str) -> str:
    part = text(document.get(name))
    if not part:
        raise ImportRejected(f"{name}: expected text, found {kind(document.get(name))}")
    return part
