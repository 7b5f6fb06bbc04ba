"""One operation to one tool draft: names of arguments, input schema, binding, hints, texts.

Its arguments are one flat object of parameters and body, and the destination of each.
"""

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from msgspec.structs import replace

from registry.importers.drafts import truncate
from registry.importers.generated_descriptions import operation_description
from registry.importers.openapi import pagination_detection
from registry.importers.openapi.document import OpenApiDocument, server_urls
from registry.importers.openapi.input_schemas import Inputs
from registry.importers.openapi.operations import DocumentOperation
from registry.importers.openapi.parameters import Parameters, WireParameter
from registry.importers.openapi.path_templates import root_path
from registry.importers.openapi.request_bodies import Bodies
from registry.importers.openapi.responses import Responses, describes_redirects
from registry.importers.openapi.schema_budgets import SizeBudget
from registry.importers.openapi.schema_components import Schemas
from registry.importers.openapi.secret_arguments import FillingCredentials, add_filled
from registry.importers.openapi.security import Security
from registry.importers.openapi.trial_calls import Trials
from registry.importers.plain_text import plain
from schemas.binding import OpenAPIBinding
from schemas.source import CredentialName
from schemas.tool import Annotations, ToolDraft
from schemas.untrusted_json import sequence, text

# RFC 9110, section 9.2: GET, HEAD, OPTIONS and TRACE are safe, these and PUT and DELETE idempotent.
# MCP: not destructive is "only additive updates". PUT and PATCH overwrite. POST is "according to
# the resource's own semantics" (9.3.3), from creating to cancelling: the verb does not decide, so
# no hint is given and MCP's default, destructive, holds.
_READ = Annotations(
    read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=True
)
_ANNOTATIONS = {
    **dict.fromkeys(("GET", "HEAD", "OPTIONS", "TRACE", "QUERY"), _READ),
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


class OpenApiDrafts:
    """Makes drafts; parts shared by operations are converted once."""

    def __init__(
        self,
        document: OpenApiDocument,
        budget: SizeBudget,
        media_types: Sequence[str] = (),
        *,
        credentials: Sequence[CredentialName] = (),
    ) -> None:
        """`budget` is the size budget of all input schemas; `media_types` are the preferred ones of
        request bodies; `credentials` are those of the source, which fill secrets."""
        self._filling = FillingCredentials(credentials)
        self._budget = budget
        self._document = document
        self._schemas = Schemas(document)
        self._security = Security(document)
        self._parameters = Parameters(document, self._schemas, self._security.fills)
        self._bodies = Bodies(document, self._schemas, self._parameters, media_types)
        self._responses = Responses(document, self._schemas.cycles)
        self._trials = Trials()

    def draft(self, operation: DocumentOperation, name: str) -> tuple[ToolDraft, list[str]]:
        """The tool and notes on losses. Raises `SkipOperation`."""
        self._budget.take(0)  # stop early when the budget is exhausted
        notes: list[str] = []
        inputs = Inputs(self._schemas, operation.marks)
        answered = self._responses.of(operation)
        binding = replace(
            self._request(operation, inputs, notes),
            accept=answered.accept,
            redirects=describes_redirects(operation),
        )
        schema = inputs.schema(self._budget)
        notes.extend(self._trials.refusals(schema, inputs.examples, inputs.required_members))
        binding = replace(
            binding,
            pagination=pagination_detection.of(
                self._document, answered, binding, schema["properties"]
            ),
        )
        title, description = _texts(operation, schema)
        draft = ToolDraft(
            key=operation.key,
            name=name,
            title=title,
            description=description,
            input_schema=schema,
            binding=binding,
            output_schema=self._budget.outputs.take(answered.output_schema, notes),
            annotations=_ANNOTATIONS.get(operation.method, _ANNOTATIONS["POST"]),
            tags=tuple(tag for tag in sequence(operation.node.get("tags")) if text(tag)),
            toolsets=operation.marks.toolsets,
            operation=operation.operation_id,
        )
        return draft, [*notes, *inputs.parts.notes, *answered.notes]

    def _request(
        self, operation: DocumentOperation, inputs: Inputs, notes: list[str]
    ) -> OpenAPIBinding:
        wires, path = self._parameters.of(operation.item, operation.node, operation.path, notes)
        filled = {
            i: credential
            for i, wire in enumerate(wires)
            if wire.marks is None and wire.name not in operation.marks.arguments
            if (credential := self._filling.of(wire.name, wire.location, _description(wire)))
        }
        body = self._bodies.of(operation, notes)
        return OpenAPIBinding(
            method=operation.method,
            path=root_path(path, notes),
            parameters=inputs.parameters([wire for i, wire in enumerate(wires) if i not in filled]),
            body=inputs.body(body) if body else None,
            server=_server(operation, notes),
            security=add_filled(self._security.of(operation, notes), tuple(filled.values())),
        )


def _description(wire: WireParameter) -> str:
    return text(wire.schema.schema.get("description"))


def _texts(operation: DocumentOperation, schema: Mapping[str, Any]) -> tuple[str | None, str]:
    """Title and description: the summary becomes the title, and opens the description. The owner's
    texts take precedence; without any text, path and parameters are described."""
    marks = operation.marks
    summary = marks.title or " ".join(plain(text(operation.node.get("summary"))).split())
    description = marks.description or plain(text(operation.node.get("description")))
    opened = marks.description is not None or description.startswith(summary)
    if summary and description and not opened:
        description = f"{summary}\n\n{description}"
    full_description = (
        description or summary or operation_description(operation.method, operation.path, schema)
    )
    description = truncate(full_description)
    return (summary if summary and summary != description else None), description


def _server(operation: DocumentOperation, notes: list[str]) -> str | None:
    """The operation's own server, else its path's: a URL, perhaps relative to the source's."""
    for holder in (operation.node, operation.item):
        for url in server_urls(holder.get("servers")):
            if _usable(url):
                return url
            notes.append(f"its own server {url!r} is no http(s) URL; ignored")
            return None
    return None


def _usable(url: str) -> bool:
    try:
        parts = urlsplit(url)
    except ValueError:  # "http://[x"
        return False
    is_absolute = parts.scheme in ("http", "https") and bool(parts.netloc)
    return "{" not in url and (is_absolute or not (parts.scheme or parts.netloc))
