"""What of a result can be looked at: its structured content and its texts. Pure."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec
from msgspec import Raw

from gateway.middleware.told import Told
from schemas.errors import ParseError
from schemas.jsonrpc import DEPTH, decode_json, encode, nests_within
from schemas.masking import MASK, Masks
from schemas.patterns import Pattern
from schemas.tool import EmbeddedResource, RelayedResult, ResourceLink, TextContent, ToolResult

SHORTEST = 4  # characters of what is hidden wherever it stands; less only as a word of a text

_LOOKED_AT = frozenset(("text", "image", "audio", "resource_link"))

_items = msgspec.json.Decoder(list[Any])


Result = ToolResult | RelayedResult


@dataclass(slots=True)
class Seen:
    """Change `value` and `texts`, then take `result`."""

    value: Any  # the structured content, decoded; None: there is none
    texts: list[str]
    size: int  # in bytes
    opaque: bool  # there is more, which cannot be looked at
    failed: bool  # it is an error, of which schemas say nothing
    has_bytes: bool  # a file is part of it
    original: Result
    rebuilt: Callable[[list[str], Raw | None], Result]  # with these texts; None: structure as it is
    _before: tuple[Any, tuple[str, ...]] = field(init=False)

    def __post_init__(self) -> None:
        self._before = (self.value, tuple(self.texts))

    def masked(self, masks: Masks, hidden: set[str]) -> bool:
        """Mask what a schema marks, also in the texts; whether all could be looked at."""
        changed = masks.applied_by_name if self.failed else masks.applied
        told = [Told.of(text) for text in self.texts]
        whole = self._is_prose_told(masks, told) and not (self.opaque or self.has_bytes)

        def change(value: Any) -> Any:
            return changed(value, hidden)

        if self.value is not None:
            self.value = change(self.value)
        for index, one in enumerate(told):
            if one is not None:
                self.texts[index] = one.changed(change, _same)
        return whole

    def _is_prose_told(self, masks: Masks, told: list[Told | None]) -> bool:
        """Whether no text has JSON that cannot be read, or prose that may tell what is marked. That
        beside structured content says what that says."""
        body = self.value.get("body") if isinstance(self.value, dict) else self.value
        body = body if self.failed else None
        if isinstance(body, str):  # what a service answered, as it came
            told = [*told, Told.of(body)]
        beside = self.value is not None and not isinstance(body, str)
        return all(
            one is not None and (beside or not masks.are_mentioned(one.prose)) for one in told
        )

    def result(self) -> Result:
        value, texts = self._before
        if self.value is value and tuple(self.texts) == texts:
            return self.original
        return self.rebuilt(self.texts, None if self.value is value else Raw(encode(self.value)))


def seen_in(result: Result) -> Seen:
    """Raises msgspec.DecodeError for a result whose content is no array."""
    return _of_ours(result) if isinstance(result, ToolResult) else _of_theirs(result)


def _of_ours(result: ToolResult) -> Seen:
    structure = result.structured_content
    raw = bytes(structure) if isinstance(structure, Raw) else b""
    texts = [item.text for item in result.content if isinstance(item, TextContent)]
    linked = any(isinstance(item, ResourceLink) for item in result.content)

    def rebuilt(texts: list[str], structure: Raw | None) -> ToolResult:
        left = iter(texts)
        content = tuple(
            TextContent(next(left)) if isinstance(item, TextContent) else item
            for item in result.content
        )
        changed = msgspec.structs.replace(result, content=content)
        if structure is None:
            return changed
        return msgspec.structs.replace(changed, structured_content=structure)

    value, is_read = _read(raw)
    return Seen(
        value,
        texts,
        len(raw) + sum(map(len, texts)),
        linked or not is_read,
        result.is_error,
        any(isinstance(item, EmbeddedResource) for item in result.content),
        result,
        rebuilt,
    )


def _of_theirs(result: RelayedResult) -> Seen:
    members = result.members
    structure, raw = members.get("structuredContent"), members.get("content")
    content = [] if raw is None else _items.decode(raw)
    holders = [one for item in content for one in _holders(item)]

    def rebuilt(texts: list[str], structure: Raw | None) -> RelayedResult:
        for holder, text in zip(holders, texts, strict=True):
            holder["text"] = text
        changed = {"content": Raw(encode(content))} if holders else {}
        if structure is not None:
            changed["structuredContent"] = structure
        return RelayedResult({**members, **changed})

    value, is_read = _read(b"" if structure is None else bytes(structure))
    promised = raw is None and structure is None and _is_promise(members)
    linked = any(_kind(item) == "resource_link" for item in content)
    return Seen(
        value,
        [holder["text"] for holder in holders],
        sum(len(memoryview(member)) for member in members.values()),
        promised or linked or not is_read,
        members.get("isError") == Raw(b"true"),
        any(map(_has_bytes, content)),
        result,
        rebuilt,
    )


def _read(raw: bytes) -> tuple[Any, bool]:
    """The structured content, and whether it could be read: not where it is too deep, or holds a
    number out of range."""
    try:
        return (decode_json(raw), True) if nests_within(raw, DEPTH) else (None, False)
    except ParseError:
        return None, not raw


def hide(seen: Seen, hidden: Iterable[str]) -> None:
    """Mask these texts wherever the result repeats them. Raises InvalidPattern for too many."""
    long = sorted((one for one in hidden if len(one) >= SHORTEST), key=len, reverse=True)
    if long:
        any_of = Pattern.of_any(long)
        numbers = frozenset(long)
        seen.value = _without(seen.value, any_of, numbers)
        seen.texts = [
            _changed(text, lambda one: _without(one, any_of, numbers)) for text in seen.texts
        ]
    if short := [one for one in hidden if 0 < len(one) < SHORTEST]:
        words = Pattern.of_words(short)
        seen.texts = [_worded(text, words) for text in seen.texts]


def _changed(text: str, change: Callable[[Any], Any]) -> str:
    told = Told.of(text)
    return change(text) if told is None else told.changed(change, change)


def _worded(text: str, words: Pattern) -> str:
    told = Told.of(text)
    return text if told is None else told.changed(_same, lambda prose: words.replaced(prose, MASK))


def _same(value: Any) -> Any:
    return value


def _without(value: Any, hidden: Pattern, numbers: frozenset[str]) -> Any:
    if isinstance(value, str):
        return hidden.replaced(value, MASK) if hidden.is_in(value) else value
    if isinstance(value, dict):
        after = {name: _without(inner, hidden, numbers) for name, inner in value.items()}
        return after if any(after[name] is not inner for name, inner in value.items()) else value
    if isinstance(value, list):
        items = [_without(inner, hidden, numbers) for inner in value]
        return value if all(new is old for new, old in zip(items, value, strict=True)) else items
    if isinstance(value, int | float) and not isinstance(value, bool) and str(value) in numbers:
        return MASK
    return value


def _holders(item: Any) -> list[dict[str, Any]]:
    """The objects whose `text` a model reads."""
    if not isinstance(item, dict):
        return []
    inner = item.get("resource")
    return [one for one in (item, inner) if isinstance(one, dict) and type(one.get("text")) is str]


def _has_bytes(item: Any) -> bool:
    """Whether it has what no rule looks into, and no picture or sound either."""
    if not isinstance(item, dict):
        return True
    if (kind := item.get("type")) == "resource":
        return not _holders(item)
    return kind not in _LOOKED_AT


def _kind(item: Any) -> Any:
    return item.get("type") if isinstance(item, dict) else None


def _is_promise(members: dict[str, Raw]) -> bool:
    """A task, whose result is fetched later."""
    return "task" in members or members.get("resultType") == Raw(b'"task"')
