"""What a description says about its operations, read without the importer. Swagger 2.0 is read in
its own terms, and files that refer to one another where they lie."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urljoin

import yaml

Json = dict[str, Any]

_STYLE = {"path": "simple", "query": "form", "header": "simple", "cookie": "form"}
_COLLECTIONS = {"ssv": "spaceDelimited", "tsv": "tabDelimited", "pipes": "pipeDelimited"}
_KEPT = ("type", "format", "items", "enum", "minimum", "maximum", "pattern", "collectionFormat")
_HOPS = 30


class Lost(Exception):
    """The description does not say what is asked: a reference to nothing, no such operation."""


@dataclass(frozen=True)
class Files:
    """Parsed files by path; read when something refers to them."""

    parsed: dict[Path, Any] = field(default_factory=dict)

    def load(self, path: Path) -> Any:
        if path not in self.parsed:
            try:
                self.parsed[path] = read(path.read_bytes())
            except (OSError, ValueError, yaml.YAMLError) as error:
                raise Lost(f"{path.name}: {error}") from error
        return self.parsed[path]


def read(data: bytes) -> Any:
    text = data.decode("utf-8-sig")
    if text.lstrip()[:1] == "{":
        return json.loads(text)
    return yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))


@dataclass(frozen=True)
class Node:
    """A value somewhere in the files, references followed."""

    value: Any
    path: Path
    files: Files

    def get(self, key: str | int) -> "Node":
        """What stands there; a node of None where nothing does."""
        inside = isinstance(self.value, list) and isinstance(key, int) and key < len(self.value)
        if not inside and not (isinstance(self.value, dict) and key in self.value):
            return Node(None, self.path, self.files)
        return Node(self.value[key], self.path, self.files).follow_reference()

    def follow_reference(self) -> "Node":
        node = self
        for _ in range(_HOPS):
            ref = node.value.get("$ref") if isinstance(node.value, dict) else None
            if not isinstance(ref, str):
                return node
            node = node.follow(ref)
        raise Lost(f"$ref {ref} never ends")

    def follow(self, ref: str) -> "Node":
        file, _, pointer = ref.partition("#")
        path = (self.path.parent / unquote(file)).resolve() if file else self.path
        value = self.files.load(path)
        for part in unquote(pointer).split("/")[1:]:
            key = part.replace("~1", "/").replace("~0", "~")
            if isinstance(value, list) and key.isdecimal() and int(key) < len(value):
                value = value[int(key)]
            elif isinstance(value, dict) and key in value:
                value = value[key]
            else:
                raise Lost(f"$ref {ref} points at nothing")
            if isinstance(value, dict) and isinstance(value.get("$ref"), str):
                node = Node(value, path, self.files).follow_reference()
                value, path = node.value, node.path
        return Node(value, path, self.files)

    def entries(self) -> Iterator[tuple[str, "Node"]]:
        for key in self.value if isinstance(self.value, dict) else ():
            yield key, self.get(key)

    def members(self) -> Iterator["Node"]:
        for index in range(len(self.value) if isinstance(self.value, list) else 0):
            yield self.get(index)

    def text(self, key: str, default: str = "") -> str:
        value = self.get(key).value
        return value if isinstance(value, str) else default


@dataclass(frozen=True)
class Spot:
    """A parameter: where its value stands, and how it is written."""

    name: str
    location: str
    style: str
    explode: bool
    schema: Node
    required: bool = False
    allow_reserved: bool = False
    allow_empty: bool = False
    media_type: str | None = None


@dataclass(frozen=True)
class Content:
    """One way to write the body."""

    media_type: str
    schema: Node
    encoding: Node
    fields: tuple[Spot, ...] = ()  # of 2.0: `formData` parameters
    styled: bool = True  # 3.0 ignores the `style` of what is in a multipart form (4.7.15.1)

    @property
    def essence(self) -> str:
        return self.media_type.partition(";")[0].strip().lower()


@dataclass(frozen=True)
class Described:
    path: str
    spots: tuple[Spot, ...]
    contents: tuple[Content, ...]
    old: bool  # Swagger 2.0
    prefix: str = ""  # of the path: of a server of its own at the same host


class Description:
    def __init__(self, path: Path) -> None:
        files = Files()
        self.root = Node(files.load(path.resolve()), path.resolve(), files)
        self.old = self.root.get("swagger").value is not None

    @property
    def version(self) -> str:
        stated = self.root.get("swagger").value or self.root.get("openapi").value
        return str(stated)[:3]

    def keys(self) -> list[str]:
        """`path@method` of each operation. Raises Lost for what is no description."""
        paths = self.root.get("paths")
        found = []
        for path in paths.value if isinstance(paths.value, dict) else ():
            try:
                item = paths.get(path)
            except Lost:
                continue
            found += [f"{path}@{method}" for method in METHODS if method in (item.value or ())]
            more = item.get("additionalOperations").value or {}
            found += [f"{path}@{method.lower()}" for method in more]
        return found

    def operation(self, key: str, method: str) -> Described:
        path = key.rpartition("@")[0]
        item = self.root.get("paths").get(path)
        node = item.get(method.lower())
        if not isinstance(node.value, dict):
            node = item.get("additionalOperations").get(method)
        if not isinstance(node.value, dict):
            raise Lost(f"no operation {key}")
        merged: dict[tuple[str, str], Node] = {}
        for holder in (item, node):
            for one in holder.get("parameters").members():
                merged[one.text("name"), one.text("in")] = one
        raw = list(merged.values())
        contents = tuple(self._old(raw, node) if self.old else self._contents(node))
        spots = tuple(_spot(one, self.old) for one in raw if one.text("in") in LOCATIONS)
        return Described(path, spots, contents, self.old, _prefix(node) or _prefix(item))

    def _contents(self, node: Node) -> Iterator[Content]:
        styled = self.version != "3.0"
        for media_type, media in node.get("requestBody").get("content").entries():
            yield Content(media_type, media.get("schema"), media.get("encoding"), styled=styled)

    def _old(self, raw: list[Node], node: Node) -> Iterator[Content]:
        consumes = node.get("consumes").value
        if consumes is None:
            consumes = self.root.get("consumes").value
        form = tuple(_spot(one, old=True) for one in raw if one.text("in") == "formData")
        nothing = Node(None, node.path, node.files)
        for one in raw:
            for media_type in (
                (consumes or ["application/json"]) if one.text("in") == "body" else ()
            ):
                yield Content(media_type, one.get("schema"), nothing)
        usual = ["application/x-www-form-urlencoded", "multipart/form-data"]
        for media_type in {*usual, *(consumes or ())} if form else ():
            yield Content(media_type, nothing, nothing, form)


METHODS = ("get", "put", "post", "delete", "options", "head", "patch", "trace", "query")
LOCATIONS = ("path", "query", "querystring", "header", "cookie")


def _prefix(holder: Node) -> str:
    """The path of the first server, where that is relative; other hosts are not for us to judge."""
    server = holder.get("servers").get(0)
    url = server.text("url")
    for name, variable in server.get("variables").entries():
        url = url.replace(f"{{{name}}}", str(variable.get("default").value))
    return "" if "://" in url or url.startswith("//") else urljoin("/", url).rstrip("/")


def _spot(raw: Node, old: bool) -> Spot:
    name, location = raw.text("name"), raw.text("in")
    required = location == "path" or raw.get("required").value is True
    if old:
        return _old_spot(raw, name, location, required)
    for media_type, media in raw.get("content").entries():
        return Spot(name, location, "", False, media.get("schema"), required, media_type=media_type)
    style = raw.text("style") or _STYLE.get(location, "form")
    explode = raw.get("explode").value
    return Spot(
        name,
        location,
        style,
        explode if isinstance(explode, bool) else style in ("form", "cookie"),
        raw.get("schema"),
        required,
        allow_reserved=raw.get("allowReserved").value is True,
        allow_empty=raw.get("allowEmptyValue").value is True,
    )


def _old_spot(raw: Node, name: str, location: str, required: bool) -> Spot:
    plain = {key: raw.value[key] for key in _KEPT if key in raw.value}
    schema = Node(plain, raw.path, raw.files)
    collection = raw.text("collectionFormat", "csv")
    style = _COLLECTIONS.get(collection) or ("form" if location != "path" else "simple")
    if location == "header" and style == "form":
        style = "simple"
    empty = raw.get("allowEmptyValue").value is True
    return Spot(name, location, style, collection == "multi", schema, required, allow_empty=empty)
