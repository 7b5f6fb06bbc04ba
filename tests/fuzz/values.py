"""Random JSON values, and text that only looks like JSON. Pure: the same Random, the same text."""

import json
from collections.abc import Callable
from random import Random
from typing import Any


class Verbatim(bytes):
    """Text that stands in a body as it is, JSON or not."""


class Members(list[tuple[Any, Any]]):
    """The members of an object, of which some may have the same name."""


NUMBERS = (
    0, 1, -1, 7, 1.5, -0.0, 1e300, 5e-324, 2**53 + 1, -(2**53) - 1, 2**63 - 1, -(2**63), 2**63,
    2**64 - 1, 2**64, 2**70, *map(Verbatim, (b"-0", b"1.0", b"1E+2", b"0.1e1", b"1e-400",
    b"1.0000000000000000000000001", b"9" * 60)),
)  # fmt: skip
STRINGS = (
    "", "x", " ", "2.0", "OK", "null", "1e400", '{"a": 1}', '{"a":1,"a":2}', "[NaN]", '"\\ud800"',
    '"\\x41"', "é", "日本", "\U0001f600", "\x00", "\x7f", "\u2028", "\ufeff", '"', "\\", '\\"',
    "%", "a+b", "100%", "%2e%2e/", "../..", "a/b/c/d", "{}", "\r\n", "__proto__", "x" * 300,
)  # fmt: skip
NAMES = ("id", "name", "data", "params", "method", "jsonrpc", "host", "_meta", "a", "b", "", "é")
HUGE = tuple(map(Verbatim, (b"1e400", b"-1e400", b"9" * 400, b"9" * 5000, b"1e99999")))
SURROGATES = tuple(map(Verbatim, (b'"\\ud800"', b'"\\udc00\\ud800"', b'"a\\uD83Dz"')))
BROKEN = tuple(
    map(
        Verbatim,
        (
            b"", b"01", b"+1", b"1.", b".5", b"-", b"1e", b"0x10", b"NaN", b"Infinity",
            b"-Infinity", b"nul", b"True", b"undefined", b"'x'", b'"', b'"\\x41"', b'"\\u12"',
            b'"\x01"', b'"\xff"', b'"\xed\xa0\x80"', b'"\xc0\xaf"', b"[1,]", b"[,1]", b"[1 2]",
            b'{"a":1,}', b"{a:1}", b'{"a" 1}', b'{"a":}', b"{1:1}", b"/**/1", b"1 1",
            b"\xef\xbb\xbf1", b"\x0b1",
        ),
    )
)  # fmt: skip
LEVELS = (10, 60, 130, 400, 900, 1500, 20_000)


def value(r: Random, depth: int = 3) -> Any:
    """A value of any type; now and then one that is no JSON."""
    roll = r.random()
    if roll < 0.02:
        return r.choice((*HUGE, *SURROGATES, *BROKEN))
    if roll < 0.023:
        return deep(r)
    if depth == 0 or roll < 0.6:
        return scalar(r)
    size = r.choice((0, 1, 1, 2, 3, 5))
    if roll < 0.75:
        return [value(r, depth - 1) for _ in range(size)]
    members = Members((string(r), value(r, depth - 1)) for _ in range(size))
    if members and r.random() < 0.1:
        members.append((r.choice(members)[0], value(r, depth - 1)))
    return members


def scalar(r: Random) -> Any:
    kinds: tuple[Callable[[], Any], ...] = (
        lambda: None,
        lambda: r.random() < 0.5,
        lambda: r.choice(NUMBERS),
        lambda: r.randint(-1000, 1000),
        lambda: r.choice(STRINGS),
        lambda: string(r),
    )
    return r.choice(kinds)()


def string(r: Random) -> str:
    """A member's name or a text of few or odd characters."""
    if r.random() < 0.5:
        return r.choice(NAMES)
    size = r.choice((1, 2, 3, 8))
    return "".join(
        chr(r.choice((97, 98, 34, 92, 47, 0, 31, 233, 0x2028, 0x1F600))) for _ in range(size)
    )


def deep(r: Random) -> Verbatim:
    """Arrays or objects in one another, most of them closed again."""
    levels = r.choice(LEVELS)
    opening, closing = r.choice(((b"[", b"]"), (b'{"a":', b"}")))
    left = levels if r.random() < 0.8 else r.randrange(levels)
    return Verbatim(opening * levels + b"1" + closing * left)


def spell(r: Random, value: Any) -> bytes:
    """The JSON text of a value, spelled in one of the many ways there are."""
    blank = r.choice((b"", b"", b"", b" ", b"\r\n\t "))
    escaping = r.choice((0.0, 0.0, 0.0, 0.3))
    return blank + _spell_value(r, value, blank, escaping) + blank


def _spell_value(r: Random, value: Any, blank: bytes, escaping: float) -> bytes:
    match value:
        case Verbatim():
            return bytes(value)
        case str():
            return _quote_text(r, value, escaping)
        case Members() | dict():
            pairs = value.items() if isinstance(value, dict) else value
            members = [
                _spell_value(r, name, blank, escaping)
                + blank
                + b":"
                + _spell_value(r, of, blank, escaping)
                for name, of in pairs
            ]
            return b"{" + blank + (b"," + blank).join(members) + b"}"
        case list() | tuple():
            inner = [_spell_value(r, one, blank, escaping) for one in value]
            return b"[" + (blank + b"," + blank).join(inner) + blank + b"]"
    return json.dumps(value).encode()


def _quote_text(r: Random, text: str, escaping: float) -> bytes:
    if not escaping:
        return json.dumps(text, ensure_ascii=r.random() < 0.5).encode()
    return b'"' + b"".join(_character(one, r.random() < escaping) for one in text) + b'"'


def _character(character: str, escaped: bool) -> bytes:
    if not escaped or ord(character) > 0xFFFF:
        return json.dumps(character, ensure_ascii=False)[1:-1].encode()
    return b"\\u%04x" % ord(character)
