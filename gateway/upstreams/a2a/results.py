"""Answers of agents as results of tools."""

import base64
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from msgspec import UNSET, Raw

from gateway.upstreams.a2a.conversation import (
    Conversation,
    asks_for_secrets,
    is_openable,
    plain_text,
    schema_of,
    text_of,
)
from gateway.upstreams.http.file_arguments import ANY_TYPE, known_type
from gateway.upstreams.http.responses_as_results import is_textual
from schemas.a2a.model import TERMINAL, Part, TaskState
from schemas.jsonrpc import encode
from schemas.tool import (
    AudioContent,
    BlobResource,
    Content,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    ToolResult,
)

META_A2A = "toolgate/a2a"  # in `_meta` of a result: handles of context and task, and the state
ITEMS = 200  # of a result, besides data
NAME = 200  # characters

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Handles:
    """A conversation as its caller may name it later; "": there is none."""

    context: str
    task: str


def result_of(talk: Conversation, handles: Handles, name: str) -> ToolResult:
    """The result of a call of the agent `name`."""
    state = None if talk.status is None else talk.status.state
    parts = _parts(talk)
    data = [part.data for part in parts if part.data is not UNSET]
    meta = {META_A2A: _facts(talk, handles)}
    if talk.reply is None and state not in TERMINAL:
        content = [TextContent(_unfinished_text(talk, state, handles, name)), *_contents(parts)]
        body = {
            **_facts(talk, handles),
            "message": text_of(parts),
            **({"data": data} if data else {}),
        }
        return ToolResult(tuple(content), Raw(encode(body)), meta=meta)
    content = list(_contents(parts))
    if not content and data:
        content = [TextContent(encode(each).decode()) for each in data[:ITEMS]]
    failed = state is not None and state is not TaskState.COMPLETED
    if state is not None and failed:
        content.insert(0, TextContent(f"{name} ended the task: {_words(state)}"))
    structure = Raw(encode(data[0] if len(data) == 1 else data)) if data else UNSET
    return ToolResult(tuple(content), structure, is_error=failed, meta=meta)


def _parts(talk: Conversation) -> list[Part]:
    """Results are artifacts; a message stands beside them only where the task did not complete, or
    has none (section 3.7)."""
    if talk.reply is not None:
        return list(talk.reply.parts)
    parts = [part for artifact in talk.artifacts.values() for part in _join_texts(artifact)]
    status = talk.status
    if status is None or status.message is None:
        return parts
    is_result = bool(parts) and status.state is TaskState.COMPLETED
    return parts if is_result else [*status.message.parts, *parts]


def _join_texts(parts: Iterable[Part]) -> Iterator[Part]:
    """The parts of an artifact, texts that follow each other as one."""
    texts: list[str] = []
    for part in parts:
        if isinstance(part.text, str):
            texts.append(part.text)
            continue
        if texts:
            yield Part(text="".join(texts))
            texts = []
        yield part
    if texts:
        yield Part(text="".join(texts))


def _contents(parts: Iterable[Part]) -> Iterator[Content]:
    """Content of all parts but data, which is structured."""
    items_left = ITEMS
    for part in parts:
        if part.data is not UNSET or part.text == "":
            continue
        if (items_left := items_left - 1) < 0:
            yield TextContent(f"Further parts than {ITEMS} are left out.")
            return
        if isinstance(part.text, str):
            yield TextContent(part.text)
        else:
            yield _link(part) if isinstance(part.url, str) else _blob(part)


def _link(part: Part) -> Content:
    """A URL as a link, which the gateway does not open."""
    url = str(part.url)
    if not is_openable(url):
        return TextContent(f"[an address that is no web address: {url[:NAME]!r}]")
    name = plain_text(part.filename, NAME) or urlsplit(url).netloc
    return ResourceLink(url, name, mime_type=known_type(part.media_type) or UNSET)


def _blob(part: Part) -> Content:
    raw, kind = bytes(part.raw or b""), known_type(part.media_type) or ANY_TYPE
    if is_textual(kind.partition(";")[0].strip().lower()):
        return TextContent(raw.decode(errors="replace"))
    data = base64.b64encode(raw).decode()
    if kind.startswith("image/"):
        return ImageContent(data, kind)
    if kind.startswith("audio/"):
        return AudioContent(data, kind)
    name = plain_text(part.filename.replace("\\", "/").rpartition("/")[2], NAME) or "file"
    return EmbeddedResource(BlobResource(f"attachment:{name}", kind, data))


def _facts(talk: Conversation, handles: Handles) -> Json:
    state = {} if talk.status is None else {"state": _words(talk.status.state)}
    named = {"context": handles.context, "task": handles.task}
    return {**{name: handle for name, handle in named.items() if handle}, **state}


def _unfinished_text(
    talk: Conversation, state: TaskState | None, handles: Handles, name: str
) -> str:
    later = f"`task`: {handles.task}"
    message = None if talk.status is None else talk.status.message
    if state is TaskState.INPUT_REQUIRED:
        secret = message is not None and any(
            asks_for_secrets(schema_of(part) or {}) for part in message.parts
        )
        warning = " Credentials do not belong into messages." if secret else ""
        return f"{name} asks for input. Answer by `message` or `data`, with {later}{warning}"
    if state is TaskState.AUTH_REQUIRED:
        return (
            f"{name} waits for a login or permission, which is given where it says, never in a "
            f"message. Then call again with {later}"
        )
    return f"{name} is still at work. Call again later with {later} and no message."


def _words(state: TaskState) -> str:
    return state.name.lower()
