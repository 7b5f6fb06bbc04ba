"""Results of upstream MCP servers, adapted to the revision of a client.

Unchanged members are passed through undecoded, unknown ones too; content is decoded only if its
bytes can hold something to change. Pure: naming comes from the caller.
"""

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct

from schemas.errors import Unreachable
from schemas.jsonrpc import encode
from schemas.mcp.messages import META_SERVER
from schemas.mcp.references import Refer, refer_members
from schemas.mcp.revisions import Revision
from schemas.tool import (
    AudioContent,
    Content,
    EmbeddedResource,
    ImageContent,
    TextContent,
    ToolResult,
)

Members = dict[str, Raw]

META_PROBLEM = "toolgate/problem"  # of an error: the structure that its output schema refuses

COMPLETIONS_LIMIT = 100  # values in one answer, in all revisions

_STATELESS_ONLY = ("resultType", "ttlMs", "cacheScope")
TRUE = Raw(b"true")  # the member `isError` of an error
_COMPLETE, _PRIVATE = Raw(b'"complete"'), Raw(b'"private"')
_NOTHING, _NULL = Raw(b"[]"), Raw(b"null")
_URIS, _SOUND, _META, _ANNOTATIONS = b'"resource', b'"audio"', b'"_meta"', b'"annotations"'
_ESCAPES = b"\\u00"  # a type may be written with escapes: "\u0061udio" is audio, too

_decode_members = msgspec.json.Decoder(Members).decode
_decode_list = msgspec.json.Decoder(list[Raw]).decode
_decode_text = msgspec.json.Decoder(str).decode
# An upstream link may have more members than ours, and must not lose them.
_decode_content = msgspec.json.Decoder(
    TextContent | ImageContent | AudioContent | EmbeddedResource
).decode
_decode_any = msgspec.json.Decoder().decode


class _SoundText(Struct, tag_field="type", tag="text"):
    text: str


class _SoundImage(Struct, tag_field="type", tag="image", rename="camel"):
    data: str
    mime_type: str


class _SoundAudio(Struct, tag_field="type", tag="audio", rename="camel"):
    data: str
    mime_type: str


class _SoundLink(Struct, tag_field="type", tag="resource_link"):
    name: str
    uri: str


class _SoundResource(Struct, tag_field="type", tag="resource"):
    resource: Members


_SoundItem = _SoundText | _SoundImage | _SoundAudio | _SoundLink | _SoundResource
_decode_sound_item = msgspec.json.Decoder(_SoundItem).decode
_decode_sound = msgspec.json.Decoder(list[_SoundItem]).decode
_NEEDED = {
    "image": ("data", "mimeType"), "audio": ("data", "mimeType"), "resource_link": ("uri",),
}  # fmt: skip


class View(Struct, frozen=True):
    """How one client sees the results of one server.

    Its methods raise Unreachable for a result that fits the method in no revision.
    """

    revision: Revision
    expose: Callable[[str], str]  # maps a URI of the server to the one for clients
    stamp: Raw  # our server info, encoded: for results without any
    refer: Refer = str  # for texts in metadata, which name resources or not

    def call_result(self, members: Members) -> Members:
        """The result of tools/call, and of tasks/result."""
        return self._call_members(self.stamp_result(members))

    def task(self, members: Members) -> Members:
        """The state of a task; in 2026-07-28 with the result of its tool."""
        members = self.stamp_result(members)
        if "result" not in members:
            return members
        before = _object(members["result"])
        after = self._call_members(refer_members(task_result(before), self.refer))
        return members if after is before else {**members, "result": Raw(encode(after))}

    def _call_members(self, members: Members) -> Members:
        if not _is_complete(members) or ("task" in members and "content" not in members):
            return members
        before, structure = members.get("content", _NULL), members.get("structuredContent")
        if before == _NULL:
            sound = _NOTHING if structure is None else _with_text(_NOTHING, structure)
        else:
            sound = before
            try:
                _decode_sound(before)
            except msgspec.DecodeError:
                sound = _mend_content(before)
        content = self._content(sound)
        if structure is not None and not self.revision.any_structure:
            return self._structure(members, content, structure)
        return members if content is before else {**members, "content": content}

    def prompt_result(self, members: Members) -> Members:
        """The result of prompts/get."""
        members = self.stamp_result(members)
        if not _is_complete(members):
            return members
        before = _require(members, "messages")
        if not _is(before, b"["):
            raise Unreachable("The server answered with a prompt whose messages are no array")
        messages = _each(before, self._message)
        return members if messages is before else {**members, "messages": messages}

    def read(self, members: Members, uri: str = "") -> Members:
        """The result of resources/read. Contents without a URI get `uri`, by which the server was
        asked. The server sets the TTL; the cache scope is always private: access depends on
        the caller."""
        members = self.stamp_result(members)
        if not _is_complete(members):
            return members
        mended = _each(_require(members, "contents"), lambda item: _with_uri(item, uri))
        members = {**members, "contents": _each(mended, self._expose_resource)}
        if self.revision.result_type:
            members |= {"ttlMs": _ttl(members.get("ttlMs")), "cacheScope": _PRIVATE}
        return members

    def completion_result(self, members: Members) -> Members:
        """The result of completion/complete, cut to the limit of values."""
        members = self.stamp_result(members)
        completion = _object(_require(members, "completion"))
        values = _items(completion.get("values", _NOTHING))
        if len(values) <= COMPLETIONS_LIMIT and "values" in completion:
            return members
        first_values = Raw(encode(values[:COMPLETIONS_LIMIT]))
        more = {"hasMore": Raw(b"true")} if len(values) > COMPLETIONS_LIMIT else {}
        return {
            **members,
            "completion": Raw(encode({**completion, "values": first_values, **more})),
        }

    def stamp_result(self, members: Members) -> Members:
        """Any other result: only members common to all results of a revision are adapted."""
        if not self.revision.result_type:
            if "_meta" in members:
                members = refer_members(members, self.refer)
            if members.keys().isdisjoint(_STATELESS_ONLY):
                return members
            return {key: value for key, value in members.items() if key not in _STATELESS_ONLY}
        meta = _object(members["_meta"]) if "_meta" in members else {}
        if len(meta) > (META_SERVER in meta):
            members = refer_members(members, self.refer)
            meta = _object(members["_meta"])
        if "resultType" in members and META_SERVER in meta:
            return members
        stamped = Raw(encode({META_SERVER: self.stamp, **meta}))
        return {"resultType": _COMPLETE, **members, "_meta": stamped}

    def _structure(self, members: Members, content: Raw, structure: Raw) -> Members:
        """Adapts structured content for revisions that have objects only, or text only."""
        if self.revision.titles:
            return {**members, "content": content, "structuredContent": wrap_structure(structure)}
        members = {**members, "content": _with_text(content, structure)}
        del members["structuredContent"]
        return members

    def _content(self, array: Raw) -> Raw:
        if not _is(array, b"["):
            raise Unreachable("The server answered with a result whose content is no array")
        return _each(array, self._item) if self._concerns(array) else array

    def _concerns(self, value: Raw) -> bool:
        text = bytes(value)
        if _URIS in text or _META in text or _ANNOTATIONS in text or _ESCAPES in text:
            return True
        return not self.revision.annotations and _SOUND in text

    def _message(self, message: Raw) -> Raw:
        members = _object(message)
        if "content" not in members and "role" not in members:
            return message  # no message of MCP: the business of the client
        before = members.get("content", _NULL)
        content = self._item(_mend_item(before))
        return message if content is before else Raw(encode({**members, "content": content}))

    def _item(self, item: Raw) -> Raw:
        if not self._concerns(item):
            return item
        before = _object(item)
        members = refer_members(before, self.refer)
        if members is not before:
            item = Raw(encode(members))
        match _string(members, "type"):
            case "audio" if not self.revision.annotations:
                kind = _string(members, "mimeType") or "of some kind"
                return _note(f"[audio, {kind}: {self.revision.name} cannot carry it]")
            case "resource_link" if not self.revision.links:
                return self._link_note(members)
            case "resource_link":
                return self._expose_resource(item)
            case "resource" if "resource" in members:
                resource = members["resource"]
                after = self._expose_resource(resource)
                return item if after is resource else Raw(encode({**members, "resource": after}))
        return item

    def _link_note(self, link: Members) -> Raw:
        """A link as text."""
        uri = self.expose(_string(link, "uri") or "")
        title = _string(link, "title") or _string(link, "name")
        return _note(f"[resource, {title}: {uri}]" if title else f"[resource: {uri}]")

    def _expose_resource(self, resource: Raw) -> Raw:
        before = _object(resource)
        members: dict[str, Any] = refer_members(before, self.refer)
        uri = _string(before, "uri")
        if uri is not None and (exposed := self.expose(uri)) != uri:
            members = {**members, "uri": exposed}
        return resource if members is before else Raw(encode(members))


def wrap_structure(structure: Raw) -> Raw:
    """`structure` as an object, for revisions that allow no other value: others are wrapped in
    `result`, as their listed output schemas are."""
    return structure if _is(structure, b"{") else Raw(b'{"result":' + bytes(structure) + b"}")


def without_structure(members: Members) -> Members:
    """A result whose structured content, which clients would refuse, is in `_meta` instead."""
    structure = members["structuredContent"]
    content = _with_text(members.get("content", _NOTHING), structure)
    meta = {**_object(members.get("_meta", _NOTHING)), META_PROBLEM: structure}
    others = {key: value for key, value in members.items() if key != "structuredContent"}
    return {**others, "content": content, "_meta": Raw(encode(meta))}


def task_result(members: Members) -> Members:
    """The result of a task. Its tool, and so its output schema, is not known: an error has no
    structured content."""
    if is_failure(members) and "structuredContent" in members:
        return without_structure(members)
    return members


def _with_uri(resource: Raw, uri: str) -> Raw:
    """Contents of a resource with the URI that clients demand."""
    if not _is(resource, b"{"):
        return resource
    members = _object(resource)
    if not uri or _string(members, "uri") is not None:
        return resource
    return Raw(encode({**members, "uri": uri}))


def _mend_content(content: Raw) -> Raw:
    """Content that clients refuse, as they can read it."""
    return _each(content, _mend_item) if _is(content, b"[") else content


def _mend_item(item: Raw) -> Raw:
    """An item of content with all that its type needs; a text that says what it lacks; itself if
    its type is not known here."""
    try:
        _decode_sound_item(item)
    except msgspec.ValidationError:
        members = _object(item)
        kind = _string(members, "type")
        text = members.get("text", _NULL)
        if kind == "text" or (kind is None and _is(text, b'"')):
            raw_text = text if _is(text, b'"') else Raw(encode(_text_of(text)))
            return Raw(encode({**members, "type": "text", "text": raw_text}))
        if kind is None:
            return _note(_text_of(item))
        if missing := [name for name in _NEEDED.get(kind, ()) if _string(members, name) is None]:
            return _note(f"[{kind}: its server left out {' and '.join(missing)}]")
        if kind == "resource_link":
            return Raw(encode({**members, "name": members["uri"]}))
        if kind == "resource":
            return _note("[resource: its server left out resource]")
    except msgspec.DecodeError:  # half a character, say, which is passed on as it came
        pass
    return item


def _text_of(value: Raw) -> str:
    """A value as text: a string itself, null nothing, others as JSON."""
    if _is(value, b'"'):
        return _decode_text(value)
    return "" if value == _NULL else bytes(value).decode()


def _with_text(content: Raw, structure: Raw) -> Raw:
    """`content` with the structure as text, unless it has a text already."""
    if b'"text"' in bytes(content):
        return content
    return Raw(encode([*_items(content), _note(bytes(structure).decode())]))


def tool_result(members: Members) -> ToolResult:
    """The result of tools/call for callers without MCP; unknown content becomes text."""
    return ToolResult(
        tuple(_decode_item(item) for item in _items(members.get("content", _NOTHING))),
        members.get("structuredContent", UNSET),
        is_failure(members),
        _decode_any(members["_meta"]) if "_meta" in members else UNSET,
    )


def is_failure(members: Members) -> bool:
    """Whether the tool reported an error."""
    return members.get("isError") == TRUE


def _decode_item(item: Raw) -> Content:
    try:
        content: Content = _decode_content(item)
    except msgspec.ValidationError:
        return TextContent(bytes(item).decode())
    return content


def _is_complete(members: Members) -> bool:
    """Otherwise it is a request for input, or a task."""
    return members.get("resultType", _COMPLETE) == _COMPLETE


def _require(members: Members, name: str) -> Raw:
    value = members.get(name)
    if value is None:
        raise Unreachable(f"The server answered with a result that has no {name}")
    return value


def _each(array: Raw, change: Callable[[Raw], Raw]) -> Raw:
    """Map the items; returns `array` itself when none changes."""
    before = _items(array)
    after = [change(item) for item in before]
    same = all(new is old for new, old in zip(after, before, strict=True))
    return array if same else Raw(encode(after))


def _items(array: Raw) -> list[Raw]:
    try:
        return _decode_list(array)
    except msgspec.ValidationError as error:
        raise Unreachable("The server answered with a result whose list is no array") from error


def _object(value: Raw) -> Members:
    """The members of an object; empty for any other value, which we never change."""
    return _decode_members(value) if _is(value, b"{") else {}


def _string(members: Members, name: str) -> str | None:
    value = members.get(name)
    return _decode_text(value) if value is not None and _is(value, b'"') else None


def _is(value: Raw, opening: bytes) -> bool:
    """Whether the value begins with `opening`: the decoder strips leading blanks."""
    return memoryview(value)[:1] == opening


def _ttl(value: Raw | None) -> Raw:
    """A number of milliseconds that every client can parse, else 0."""
    text = b"" if value is None else bytes(value)
    return Raw(text) if text.isdigit() and len(text) < 16 else Raw(b"0")


def _note(text: str) -> Raw:
    return Raw(encode(TextContent(text)))
