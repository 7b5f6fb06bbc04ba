"""One operation to one tool draft: names of arguments, input schema, binding, hints, texts."""

import re
from typing import Any
from urllib.parse import quote, urlsplit

import jsonschema_rs

from registry.importers.openapi.arguments import Arguments, legal_argument
from registry.importers.openapi.body import Payload, payload
from registry.importers.openapi.document import Document, Skip, server_urls
from registry.importers.openapi.operations import Operation
from registry.importers.openapi.parameters import Parameters, Wire
from registry.importers.openapi.schemas import Parts, Schemas
from registry.importers.openapi.values import sequence, text
from registry.importers.texts import cut
from schemas.binding import Body, Location, OpenAPIBinding, Parameter
from schemas.tool import Annotations, ToolDraft

_PARTS = re.compile(r"(\{[^{}]*\})")
_PATH = "/%:@!$&'()*+,;=~"  # RFC 3986, 3.3; what is percent-encoded already stays so

_LOCATIONS: tuple[Location, ...] = ("path", "query", "header", "cookie")  # who keeps a plain name

# RFC 9110, section 9.2: GET, HEAD, OPTIONS and TRACE are safe, these and PUT and DELETE idempotent.
# MCP: not destructive is "only additive updates". PUT and PATCH overwrite. POST is "according to
# the resource's own semantics" (9.3.3), from creating to cancelling: the verb does not tell, so
# nothing is claimed and MCP's default, destructive, holds.
_READ = Annotations(
    read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=True
)
_ANNOTATIONS = {
    **dict.fromkeys(("GET", "HEAD", "OPTIONS", "TRACE"), _READ),
    **dict.fromkeys(
        ("PUT", "DELETE"),
        Annotations(
            read_only_hint=False, destructive_hint=True, idempotent_hint=True, open_world_hint=True
        ),
    ),
    "PATCH": Annotations(
        read_only_hint=False, destructive_hint=True, idempotent_hint=False, open_world_hint=True
    ),
    "POST": Annotations(read_only_hint=False, idempotent_hint=False, open_world_hint=True),
}


class Tools:
    """Makes drafts; what operations share is converted once."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._schemas = Schemas(document)
        self._parameters = Parameters(document, self._schemas)

    def draft(self, operation: Operation, name: str) -> tuple[ToolDraft, list[str]]:
        """The tool and what was lost on the way. Raises `Skip`."""
        notes: list[str] = []
        wires = self._parameters.of(operation.item, operation.node, operation.path, notes)
        body = payload(operation.node, self._document, self._schemas, notes)
        form = _Form(self._schemas)
        binding = OpenAPIBinding(
            method=operation.method,
            path=_rooted(operation.path, notes),
            parameters=form.parameters(wires),
            body=form.body(body) if body else None,
            server=_server(operation, notes),
        )
        title, description = _texts(operation)
        draft = ToolDraft(
            key=operation.key,
            name=name,
            title=title,
            description=description,
            input_schema=form.schema(),
            binding=binding,
            annotations=_ANNOTATIONS[operation.method],
            tags=tuple(tag for tag in sequence(operation.node.get("tags")) if text(tag)),
        )
        return draft, [*notes, *form.parts.notes]


class _Form:
    """The arguments of one tool, as they are named and put into one flat object."""

    def __init__(self, schemas: Schemas) -> None:
        self.parts = Parts()
        self._schemas = schemas
        self._names = Arguments()
        self._properties: dict[str, Any] = {}
        self._required: list[str] = []
        self._dependent: dict[str, list[str]] = {}

    def parameters(self, wires: list[Wire]) -> tuple[Parameter, ...]:
        names = self._name_parameters(wires)
        for wire, name in zip(wires, names, strict=True):
            self._properties[name] = self.parts.take(wire.schema, f"parameter {wire.name}")
            if wire.required:
                self._required.append(name)
        return tuple(_parameter(wire, name) for wire, name in zip(wires, names, strict=True))

    def _name_parameters(self, wires: list[Wire]) -> list[str]:
        """The wire's name, where it is legal and no other location has it."""
        order = sorted(range(len(wires)), key=lambda i: _LOCATIONS.index(wires[i].location))
        exact = {i for i in order if self._names.claim_exact(wires[i].name)}
        names = {i: wires[i].name for i in exact}
        for i in order:
            if i not in exact:
                wanted = legal_argument(wires[i].name)
                names[i] = self._names.claim(wanted, f"{wanted}_{wires[i].location}")
        return [names[i] for i in range(len(wires))]

    def body(self, body: Payload) -> Body:
        if body.properties is None:
            return self._whole(body)
        self.parts.take(body.converted, "body")
        order = list(body.properties)
        names = {name: name for name in order if self._names.claim_exact(name)}
        for name in order:
            if name not in names:
                names[name] = self._names.claim(name, f"body_{legal_argument(name)}")
        for name in order:
            self._properties[names[name]] = body.properties[name]
        self._demand([names[name] for name in body.demanded], list(names.values()), body.required)
        hoisted = tuple((names[name], name) for name in order)
        return Body(body.media_type, required=body.required, properties=hoisted)

    def _demand(self, demanded: list[str], arguments: list[str], required: bool) -> None:
        """A body that may be absent demands its properties only once one of them is given."""
        if required:
            self._required += demanded
            return
        for argument in arguments:
            if others := [name for name in demanded if name != argument]:
                self._dependent[argument] = others

    def _whole(self, body: Payload) -> Body:
        name = self._names.claim("body")
        schema = self.parts.take(body.converted, "body")
        if body.description:
            schema = {**schema, "description": body.description}
        self._properties[name] = schema
        if body.required:
            self._required.append(name)
        return Body(body.media_type, required=body.required, argument=name)

    def schema(self) -> dict[str, Any]:
        """Raises `Skip` if it does not compile after all."""
        schema: dict[str, Any] = {"type": "object", "properties": self._properties}
        if self._required:
            schema["required"] = self._required
        if self._dependent:
            schema["dependentRequired"] = self._dependent
        schema["additionalProperties"] = False
        if definitions := self._schemas.definitions(self.parts):
            schema["$defs"] = definitions
        try:
            jsonschema_rs.Draft202012Validator(schema)
        except (jsonschema_rs.ValidationError, ValueError) as error:
            problem = str(error).partition("\n")[0]
            raise Skip(f"its input schema cannot be compiled: {problem}") from error
        return schema


def _parameter(wire: Wire, argument: str) -> Parameter:
    return Parameter(
        argument=argument,
        name=wire.name,
        location=wire.location,
        style=wire.style,
        explode=wire.explode,
        allow_reserved=wire.allow_reserved,
        media_type=wire.media_type,
    )


def _texts(operation: Operation) -> tuple[str | None, str]:
    """Title and description: the summary names a tool, and opens its description."""
    summary = text(operation.node.get("summary"))
    description = text(operation.node.get("description"))
    if summary and description and not description.startswith(summary):
        description = f"{summary}\n\n{description}"
    description = cut(description or summary or operation.endpoint)
    return (summary if summary and summary != description else None), description


def _rooted(path: str, notes: list[str]) -> str:
    """The path as it goes over the wire, its variables aside."""
    if not path.startswith("/"):
        notes.append("its path does not begin with a slash; one is added")
        path = f"/{path}"
    return "".join(
        part if part.startswith("{") else quote(part, safe=_PATH) for part in _PARTS.split(path)
    )


def _server(operation: Operation, notes: list[str]) -> str | None:
    """The operation's own server, else its path's; only a full URL says where that is."""
    for holder in (operation.node, operation.item):
        for url in server_urls(holder.get("servers")):
            parts = urlsplit(url)
            if parts.scheme in ("http", "https") and parts.netloc and "{" not in url:
                return url
            notes.append(f"its own server {url!r} is not a full http(s) URL; ignored")
            return None
    return None
