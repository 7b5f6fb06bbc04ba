"""Texts: of formats, of patterns, and those that careless code gets wrong on the wire."""

import base64
import re
import warnings
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

from tests.roundtrip.merge import Impossible

# every reserved character of RFC 3986 stands in one of them, and what looks like another type
ODD = (
    "", "a b", "a+b", "100%", "%41%2F", "a&b=c", "x=y", 'q"uo\'te', "ü", "日本語", "\U0001f600",
    "007", "1", "1.0", "true", "false", "null", "None", "a/b", "/", "../x", ".", "..", "a\\b",
    "a,b", "a;b", "a.b", "a|b", "[x]", "{x}", "#frag", "?q", "a:b@c", "$100", "!*'()", " x ",
    "tab\there", "line\nbreak", "~-_", "<b>&amp;</b>", "^`", "x" * 300, "-1", "1e5", "é",
)  # fmt: skip
_WORDS = ("lamp", "north", "alpha", "octocat", "value", "Zurich", "main", "blue", "x1")
_LONGEST = 12  # repetitions of what a pattern repeats without end


def word(r: Random) -> str:
    return r.choice(_WORDS)


def format_text(name: str, r: Random) -> str:
    """A text of that format; "" for formats that say nothing here."""
    return _FORMATS[name](r) if name in _FORMATS else ""


def _uuid(r: Random) -> str:
    digits = f"{r.getrandbits(128):032x}"
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-a{digits[17:20]}-{digits[20:]}"


def _date(r: Random) -> str:
    return f"20{r.randint(10, 38)}-{r.randint(1, 12):02}-{r.randint(1, 28):02}"


def _time(r: Random) -> str:
    return f"{r.randint(0, 23):02}:{r.randint(0, 59):02}:07"


def _encode_bytes(r: Random) -> str:
    return base64.b64encode(r.choice((b"\xff\xfe+", b"abc", b"\x00" * 5))).decode()


_FORMATS: dict[str, Callable[[Random], str]] = {
    "uuid": _uuid,
    "date": _date,
    "date-time": lambda r: f"{_date(r)}T{_time(r)}{r.choice(('Z', '+02:00', '.125Z'))}",
    "time": lambda r: f"{_time(r)}Z",
    "duration": lambda r: "P1DT2H",
    "email": lambda r: f"{word(r).lower()}+tag@example.com",
    "idn-email": lambda r: "ü@example.com",
    "uri": lambda r: f"https://example.com/{word(r)}?q=a%20b&c=d#e",
    "uri-reference": lambda r: "/a/b?c",
    "iri": lambda r: "https://example.com/ü",
    "url": lambda r: "http://example.com/a?b=c&d",
    "hostname": lambda r: "api.example.com",
    "ipv4": lambda r: "192.0.2.7",
    "ipv6": lambda r: "2001:db8::1",
    "byte": _encode_bytes,
    "base64": _encode_bytes,
    "json-pointer": lambda r: "/a~1b/0",
    "regex": lambda r: "a+b",
    "uri-template": lambda r: "/a/{b}",
}


def matching(pattern: str, r: Random, least: int = 0) -> str:
    """A text of at least so many characters that the pattern (ECMA 262) finds itself in, if it is
    a simple one: it is read, never run. Raises Impossible."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = re._parser.parse(_pythonic(pattern))  # type: ignore[attr-defined]
    except (re.error, OverflowError, RecursionError) as error:
        raise Impossible(f"pattern {pattern[:60]}") from error
    short = "".join(_expand_pattern(tree, r, {}))
    return short if len(short) >= least else "".join(_expand_pattern(tree, r, {}, least))


def _pythonic(pattern: str) -> str:
    plain = pattern.replace("(?<", "(?P<").replace("(?P<=", "(?<=").replace("(?P<!", "(?<!")
    for name, class_ in (("L", "a-z"), ("Lu", "A-Z"), ("Ll", "a-z"), ("N", "0-9"), ("Nd", "0-9")):
        plain = plain.replace(f"\\p{{{name}}}", class_).replace(f"\\P{{{name}}}", "_")
    return plain.replace("\\/", "/").replace("\\Z", "$")


def _expand_pattern(tree: Any, r: Random, groups: dict[int, str], least: int = 0) -> Iterator[str]:
    for operator, detail in tree:
        match str(operator):
            case "LITERAL":
                yield chr(detail)
            case "NOT_LITERAL":
                yield "b" if chr(detail) == "a" else "a"
            case "ANY":
                yield "a"
            case "IN":
                yield _one_of(detail, r)
            case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
                low, high, inner = detail
                usual = r.randint(low, max(low, min(int(high), low + _LONGEST)))
                for _ in range(min(int(high), max(least, usual))):
                    yield from _expand_pattern(inner, r, groups)
            case "BRANCH":
                yield from _expand_pattern(r.choice(detail[1]), r, groups, least)
            case "SUBPATTERN":
                text = "".join(_expand_pattern(detail[3], r, groups, least))
                groups[detail[0] or 0] = text
                yield text
            case "GROUPREF":
                yield groups.get(detail, "")
            case "AT" | "ASSERT" | "ASSERT_NOT":
                continue  # checked by the validator
            case other:
                raise Impossible(f"pattern with {other}")


_CLASSES = {"CATEGORY_DIGIT": "0123456789", "CATEGORY_WORD": "abcXYZ019_", "CATEGORY_SPACE": " "}


def _one_of(members: Any, r: Random) -> str:
    """A character of a set, or one that is outside of a negated one."""
    negated = bool(members) and str(members[0][0]) == "NEGATE"
    ranges = [_range(member, r) for member in (members[1:] if negated else members)]
    if not negated:
        return r.choice(ranges)(r)
    for candidate in "aA0_- .,:;!/é":
        if not any(_holds(member, candidate) for member in members[1:]):
            return candidate
    raise Impossible("a set without members")


def _range(member: Any, r: Random) -> Callable[[Random], str]:
    operator, detail = member
    match str(operator):
        case "LITERAL":
            return lambda _: chr(detail)
        case "RANGE":
            low, high = detail
            return lambda r: chr(r.randint(low, min(high, max(low, 0xD000))))
        case "CATEGORY":
            return lambda r: r.choice(_CLASSES.get(str(detail), "a-.,"))
    raise Impossible(f"set with {operator}")


def _holds(member: Any, char: str) -> bool:
    operator, detail = member
    match str(operator):
        case "LITERAL":
            return ord(char) == detail
        case "RANGE":
            return bool(detail[0] <= ord(char) <= detail[1])
    shown = _CLASSES.get(str(detail), "")
    return char in shown or (str(detail) == "CATEGORY_WORD" and char.isalnum())
