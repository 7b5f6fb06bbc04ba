"""`_fields`: the members of a JSON answer that a caller wants. Pure.

Values are carried as they came, so numbers keep all their digits. A path goes through arrays as if
they were not there; it cannot name a member whose name holds a dot.
"""

from typing import Any

import msgspec
from msgspec import Raw

from schemas.errors import InvalidParams
from schemas.jsonrpc import encode

PATHS_LIMIT = 100
STEPS_LIMIT = 20  # in one path
CHARACTERS_LIMIT = 500  # in one path
ARRAYS_LIMIT = 8  # directly inside one another: each is read once more

Paths = tuple[tuple[str, ...], ...]
_Wanted = dict[str, "_Wanted"]  # empty: all of it

_object = msgspec.json.Decoder(dict[str, Raw]).decode
_array = msgspec.json.Decoder(list[Raw]).decode


def paths_of(value: Any) -> Paths:
    """`["id", "owner.login"]`, or `"id,owner.login"`, as paths. Raises InvalidParams."""
    texts = value.split(",") if isinstance(value, str) else value
    if not isinstance(texts, list) or not all(isinstance(one, str) for one in texts):
        raise InvalidParams('_fields: expected paths such as ["id", "owner.login"]')
    paths = tuple(dict.fromkeys(_path(one.strip()) for one in texts if one.strip()))
    if not paths or len(paths) > PATHS_LIMIT:
        raise InvalidParams(f"_fields: expected 1 to {PATHS_LIMIT} paths")
    return paths


def _path(text: str) -> tuple[str, ...]:
    steps = tuple(text.split("."))
    if len(text) > CHARACTERS_LIMIT or len(steps) > STEPS_LIMIT or not all(steps):
        raise InvalidParams(
            f"_fields: {text[:60]!r} is no path: expected up to {STEPS_LIMIT} names with dots "
            "between them"
        )
    return steps


def project(value: Raw, paths: Paths) -> tuple[Raw, list[str]]:
    """`value` with what the paths lead to alone, and the paths that lead to nothing in it."""
    wanted: _Wanted = {}
    for path in sorted(paths, key=len, reverse=True):
        node = wanted
        for step in path:
            node = node.setdefault(step, {})
        node.clear()  # a shorter path takes all that longer ones below it do
    met: set[tuple[str, ...]] = set()
    kept = _kept(value, wanted, (), met, 0)
    whole = met.intersection(paths)
    missing = [".".join(path) for path in paths if not _is_met(path, whole)]
    return value if kept is None else kept, missing


def _is_met(path: tuple[str, ...], whole: set[tuple[str, ...]]) -> bool:
    return any(path[:length] in whole for length in range(1, len(path) + 1))


def _kept(
    value: Raw, wanted: _Wanted, at: tuple[str, ...], met: set[tuple[str, ...]], arrays: int
) -> Raw | None:
    """None for what holds no members."""
    if not wanted:
        return value
    match bytes(memoryview(value)[:1]):
        case b"{":
            members = _object(value)
            out = {}
            for name, member in members.items():
                if name not in wanted:
                    continue
                place = (*at, name)
                met.add(place)
                kept = _kept(member, wanted[name], place, met, 0)
                if kept is not None:
                    out[name] = kept
            return Raw(encode(out))
        case b"[" if arrays < ARRAYS_LIMIT:
            found = [_kept(one, wanted, at, met, arrays + 1) for one in _array(value)]
            return Raw(encode([one for one in found if one is not None]))
    return None
