"""The playground of prompts and resources: lists, prompts with arguments, reads, completion.

Requests are those of a client of the visitor, so that policy, limits and audit hold. What servers
send is shown as text, and as a picture where it is a small one of a safe type.
"""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from starlette.responses import Response

from gateway.console.argument_form import Adapt, ArgumentForm
from gateway.console.forms import FormField
from gateway.console.page_request import PageRequest, as_json
from gateway.console.rendering import indent_json, pretty
from gateway.console.routes import PageRoute
from gateway.console.visitor_operations import RpcAnswer
from gateway.methods.capabilities import has
from registry.names.uris import expand_template, template_variables
from schemas.errors import MethodNotFound
from schemas.json_schema.pointers import escape, unescape
from schemas.mcp.snapshot import SnapshotItem

LISTS: Mapping[str, tuple[str, str]] = {
    "prompt": ("prompts/list", "prompts"),
    "resource": ("resources/list", "resources"),
    "template": ("resources/templates/list", "resourceTemplates"),
}
"""The method that lists a kind of thing, and the member of its result."""

PICTURES = frozenset({"image/gif", "image/jpeg", "image/png", "image/webp"})
PICTURE_BYTES = 1 << 19
COMPLETIONS = 100  # that are offered at a time, as in MCP


@dataclass(frozen=True, slots=True, kw_only=True)
class ContentView:
    """Content of an answer, as a page shows it."""

    title: str = ""  # URI, or role of a message
    media_type: str = ""
    text: str = ""
    picture: str = ""  # data URL
    hidden_bytes: int = 0  # of what is not shown


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedItem:
    """A prompt, resource or template as its server lists it; a member of another type is empty."""

    name: str
    title: str
    description: str
    uri: str  # or the URI template
    media_type: str
    arguments: Sequence[Mapping[str, Any]]

    @classmethod
    def read(cls, members: Any) -> "ListedItem":
        return cls(
            name=text_of(members, "name"),
            title=text_of(members, "title"),
            description=text_of(members, "description"),
            uri=text_of(members, "uri") or text_of(members, "uriTemplate"),
            media_type=text_of(members, "mimeType"),
            arguments=items_of(members, "arguments"),
        )


async def prompts_page(visit: PageRequest) -> Response:
    return await _list_page(visit, "prompts.html", "prompt")


async def resources_page(visit: PageRequest) -> Response:
    is_template = visit.query.get("kind") == "template"
    return await _list_page(visit, "resources.html", "template" if is_template else "resource")


async def _list_page(visit: PageRequest, template: str, kind: str) -> Response:
    """A page of a list, as a client gets it."""
    method, member = LISTS[kind]
    after = visit.query.get("after", "")
    answer = await visit.operations.send(method, {"cursor": after} if after else {})
    if visit.query.get("format") == "json":
        return exchange_json(answer)
    if answer.fault is not None and not isinstance(answer.fault, MethodNotFound):
        return visit.problem(answer.fault.failed_status(), answer.fault.message)
    result = answer.result or {}  # none where no source has such things
    return visit.page(
        template,
        rows=[ListedItem.read(entry) for entry in result.get(member, ())],
        next=result.get("nextCursor", ""),
        kind=kind,
        **answer_values(visit, answer),
    )


async def prompt_page(visit: PageRequest) -> Response:
    """A prompt: its arguments, and the messages that it becomes."""
    name = visit.path("prompt")
    prompt = await _find_listed(visit, "prompt", name)
    if prompt is None:
        return visit.problem(404)
    catalog = visit.parts.catalogs.of(visit.operations.tenant)
    form = ArgumentForm(visit, _arguments_schema(prompt.arguments))
    answer = None
    if form.act == "send" and _is_whole(visit, form, prompt.arguments):
        params = {"name": name, "arguments": form.value}
        answer = await visit.operations.send("prompts/get", params)
    if answer is not None and visit.query.get("format") == "json":
        return exchange_json(answer)
    result = (answer.result if answer is not None else None) or {}
    return visit.page(
        "prompt.html",
        prompt=prompt,
        description=text_of(result, "description"),
        contents=[
            content_view(content, text_of(message, "role"))
            for message in items_of(result, "messages")
            for content in _contents_of(message)
        ],
        **form.page_values(_completed_by(visit, catalog.prompt(name), prompt=name)),
        **({"answer": None} if answer is None else answer_values(visit, answer)),
    )


async def resource_page(visit: PageRequest) -> Response:
    """A resource, or one of a template, and what is read."""
    uri, template = visit.query.get("uri", ""), visit.query.get("template", "")
    if template:
        resource = await _find_listed(visit, "template", template)
    else:
        resource = await _find_listed(visit, "resource", uri)
    if resource is None:
        return visit.problem(404)
    catalog = visit.parts.catalogs.of(visit.operations.tenant)
    variables = [{"name": name} for name in template_variables(template)]
    form = ArgumentForm(visit, _arguments_schema(variables))
    answer = None
    if form.act == "send" and form.is_complete:
        uri = expand_template(template, form.value) if template else uri
        answer = await visit.operations.send("resources/read", {"uri": uri})
    if answer is not None and visit.query.get("format") == "json":
        return exchange_json(answer)
    result = (answer.result if answer is not None else None) or {}
    items = {item.name: item for item in catalog.templates}
    return visit.page(
        "resource.html",
        resource=resource,
        uri=uri,
        template=template,
        contents=[resource_view(contents) for contents in items_of(result, "contents")],
        **form.page_values(_completed_by(visit, items.get(template), template=template)),
        **({"answer": None} if answer is None else answer_values(visit, answer)),
    )


async def completions(visit: PageRequest) -> Response:
    """Values of an argument that its server proposes, as options; none where it fails."""
    prompt, name = visit.query.get("prompt", ""), visit.query.get("argument", "")
    ref = {"type": "ref/resource", "uri": visit.query.get("template", "")}
    members = {
        unescape(field[1:]): visit.posted_value(field)
        for field in visit.form
        if field.startswith("/")
    }
    params = {
        "ref": {"type": "ref/prompt", "name": prompt} if prompt else ref,
        "argument": {"name": name, "value": members.pop(name, "")},
        "context": {"arguments": {member: text for member, text in members.items() if text}},
    }
    answer = await visit.operations.send("completion/complete", params)
    if visit.query.get("format") == "json":
        return exchange_json(answer)
    values = items_of((answer.result or {}).get("completion"), "values")
    names = [value for value in values if isinstance(value, str)]
    return visit.page("choices.html", names=names[:COMPLETIONS])


async def _find_listed(visit: PageRequest, kind: str, value: str) -> ListedItem | None:
    """The prompt of this name, the resource or the template of this URI; None: the visitor has no
    such thing. Raises Fault where the list is refused."""
    method, listed = LISTS[kind]
    params: dict[str, Any] = {}
    while value:
        answer = await visit.operations.send(method, params)
        if answer.fault is not None and not isinstance(answer.fault, MethodNotFound):
            raise answer.fault
        result = answer.result or {}
        for item in map(ListedItem.read, result.get(listed, ())):
            if value == (item.name if kind == "prompt" else item.uri):
                return item
        if not result.get("nextCursor"):
            break
        params = {"cursor": result["nextCursor"]}
    return None


def _arguments_schema(arguments: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The schema of arguments, which are texts."""
    properties = {
        argument["name"]: {"type": "string", "description": text_of(argument, "description")}
        for argument in arguments
    }
    required = [argument["name"] for argument in arguments if argument.get("required")]
    return {"type": "object", "properties": properties, "required": required}


def _is_whole(
    visit: PageRequest, form: ArgumentForm, arguments: Sequence[Mapping[str, Any]]
) -> bool:
    """Whether all required arguments are there; those that are not are marked."""
    if form.is_complete:
        for argument in arguments:
            if argument.get("required") and argument["name"] not in form.value:
                form.errors[f"/{escape(argument['name'])}"] = visit.texts("This is needed.")
    return form.is_complete


def _completed_by(visit: PageRequest, item: SnapshotItem | None, **of: str) -> Adapt:
    """Gives a field the URL that completes it, if its server does that."""
    sources = visit.parts.catalogs.of(visit.operations.tenant).sources
    source = None if item is None else sources.get(item.source)
    completes = source is not None and source.server and has(source.server, "completions")

    def adapt(field: FormField) -> FormField:
        if not completes:
            return field
        return replace(field, completes=visit.url("completions", **of, argument=field.label))

    return adapt


def answer_values(visit: PageRequest, answer: RpcAnswer) -> dict[str, Any]:
    """The values of `rpc_answer.html`. Its `tojson` writes no quote that ends a text of a shell."""
    settings = visit.parts.settings()
    return {
        "answer": answer,
        "mcp_url": f"{visit.public_base}{settings.mcp.path}",
        "has_key": settings.auth.mode != "none",
    }


def exchange_json(answer: RpcAnswer) -> Response:
    """A request and its answer as JSON."""
    return as_json({"request": answer.request, "answer": answer.reply})


def text_of(members: Any, name: str) -> str:
    """A member that is text; "" for any other, as servers send what they like."""
    value = members.get(name) if isinstance(members, dict) else None
    return value if isinstance(value, str) else ""


def items_of(members: Any, name: str) -> Sequence[Any]:
    """A member that is an array; none for any other."""
    value = members.get(name) if isinstance(members, dict) else None
    return value if isinstance(value, list) else ()


def content_view(content: Any, title: str = "") -> ContentView:
    """Content of a message or a result."""
    kind = text_of(content, "type")
    if kind == "text" and isinstance(content.get("text"), str):
        return ContentView(title=title, text=content["text"])
    if kind in {"image", "audio"}:
        return _binary_view(title, text_of(content, "mimeType"), content.get("data"))
    if kind == "resource":
        return resource_view(content.get("resource"), title)
    return ContentView(title=title, media_type=kind, text=pretty(content))


def _contents_of(message: Any) -> Sequence[Any]:
    """Contents of a message; the message, where it has none."""
    return [message["content"]] if isinstance(message, dict) and "content" in message else [message]


def resource_view(contents: Any, title: str = "") -> ContentView:
    """Contents of a resource."""
    title = f"{title} {text_of(contents, 'uri')}".strip()
    media_type = text_of(contents, "mimeType")
    if isinstance(contents, dict) and "blob" in contents:
        return _binary_view(title, media_type, contents["blob"])
    if not isinstance(contents, dict) or not isinstance(contents.get("text"), str):
        return ContentView(title=title, media_type=media_type, text=pretty(contents))
    is_json = media_type.partition(";")[0].endswith("json")
    text = indent_json(contents["text"]) if is_json else contents["text"]
    return ContentView(title=title, media_type=media_type, text=text)


def _binary_view(title: str, media_type: str, data: Any) -> ContentView:
    """A small picture of a safe type; else how long it is."""
    try:
        raw = base64.b64decode(data, validate=True)
    except (ValueError, TypeError):
        return ContentView(title=title, media_type=media_type, text=pretty(data))
    if media_type in PICTURES and len(raw) <= PICTURE_BYTES:
        picture = f"data:{media_type};base64,{base64.b64encode(raw).decode()}"
        return ContentView(title=title, media_type=media_type, picture=picture)
    return ContentView(title=title, media_type=media_type, hidden_bytes=len(raw))


ROUTES = (
    PageRoute("/prompts", prompts_page),
    PageRoute("/prompts/{prompt:path}", prompt_page, ("GET", "POST")),
    PageRoute("/resources", resources_page),
    PageRoute("/resources/read", resource_page, ("GET", "POST")),
    PageRoute("/completions", completions, ("POST",)),
)
