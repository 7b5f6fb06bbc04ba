"""What of a result can be looked at: its structured content and its texts. Pure."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec
from msgspec import Raw

from gateway.middleware.inspection import json_in
from schemas.jsonrpc import decode_json, encode
from schemas.masking import MASK, Masks
from schemas.patterns import Pattern
from schemas.tool import RelayedResult, ResourceLink, TextContent, ToolResult

SHORTEST = 4  # characters of what is hidden wherever it stands

_items = msgspec.json.Decoder(list[Any])


Result = ToolResult | RelayedResult


@dataclass(slots=True)
class Seen:
    """Change `value` and `texts`, then take `result`."""

    value: Any  # the structured content, decoded; None: there is none
    texts: list[str]
    size: int  # in bytes
    opaque: bool  # there is more, which cannot be looked at
    original: Result
    rebuilt: Callable[[list[str], Raw | None], Result]  # with these texts; None: structure as it is
    _before: tuple[Any, tuple[str, ...]] = field(init=False)

    def __post_init__(self) -> None:
        self._before = (self.value, tuple(self.texts))

    def masked(self, masks: Masks, hidden: set[str]) -> None:
        """Mask what a schema marks, also in texts that repeat the structured content."""
        if self.value is not None:
            self.value = masks.applied(self.value, hidden)
        for index, text in enumerate(self.texts):
            parsed = json_in(text)
            after = parsed if parsed is None else masks.applied(parsed, hidden)
            if after is not parsed:
                self.texts[index] = encode(after).decode()

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

    size = len(raw) + sum(map(len, texts))
    return Seen(decode_json(raw) if raw else None, texts, size, linked, result, rebuilt)


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

    promised = raw is None and structure is None and _is_promise(members)
    linked = any(_kind(item) == "resource_link" for item in content)
    return Seen(
        None if structure is None else decode_json(bytes(structure)),
        [holder["text"] for holder in holders],
        sum(len(memoryview(member)) for member in members.values()),
        promised or linked,
        result,
        rebuilt,
    )


def hide(seen: Seen, hidden: Iterable[str]) -> None:
    """Mask these texts wherever the result repeats them. Raises InvalidPattern for too many."""
    long = sorted((one for one in hidden if len(one) >= SHORTEST), key=len, reverse=True)
    if long:
        any_of = Pattern.of_any(long)
        numbers = frozenset(long)
        seen.value = _without(seen.value, any_of, numbers)
        seen.texts = [_without(text, any_of, numbers) for text in seen.texts]


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


def _kind(item: Any) -> Any:
    return item.get("type") if isinstance(item, dict) else None


def _is_promise(members: dict[str, Raw]) -> bool:
    """A task, whose result is fetched later."""
    return "task" in members or members.get("resultType") == Raw(b'"task"')
