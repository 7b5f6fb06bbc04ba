"""Forms in a body: each field as a parameter of a query."""

from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote_plus

from tests.roundtrip import reading
from tests.roundtrip.compare import is_json_of, says
from tests.roundtrip.described import Content, Node, Spot
from tests.roundtrip.expressible import why_not
from tests.roundtrip.facts import kind, property_of
from tests.roundtrip.finding import Finding
from tests.roundtrip.reading import Unreadable

FORM = "application/x-www-form-urlencoded"


def fields(content: Content, names: list[str]) -> dict[str, tuple[Spot, Node]]:
    """Each property as a parameter of a query, and its Encoding Object."""
    spots = {spot.name: spot for spot in content.fields}
    found = {}
    for name in names:
        encoding = content.encoding.get(name)
        spot = spots.get(name) or _property(content, name, encoding)
        found[name] = spot, encoding
    return found


def _property(content: Content, name: str, encoding: Node) -> Spot:
    style, explode = encoding.text("style", "form"), encoding.get("explode").value
    exploded = explode if isinstance(explode, bool) else style == "form"
    schema = property_of(content.schema, name)
    reserved = encoding.get("allowReserved").value is True
    return Spot(name, "query", style, exploded, schema, allow_reserved=reserved)


def judge_form(content: Content, body: str, sent: dict[str, Any]) -> Iterator[Finding]:
    pairs = reading.pairs(body)
    described = fields(content, list(sent))
    for name, value in sent.items():
        spot, encoding = described[name]
        yield _field(spot, encoding, pairs, value, [other for other in sent if other != name])
    known = set(sent)
    strangers = [k for k, _ in pairs if unquote_plus(k).partition("[")[0] not in known]
    objects = any(spot.explode and isinstance(sent[n], dict) for n, (spot, _) in described.items())
    yield Finding(
        "nothing unasked in a form", not strangers or objects, detail=str(strangers)[:200]
    )


def _field(
    spot: Spot, encoding: Node, pairs: list[tuple[str, str]], sent: Any, others: list[str]
) -> Finding:
    shape = shape_of(spot, sent)
    explicit = any(encoding.get(key).value is not None for key in ("style", "explode"))
    feature = f"form {spot.style}{' explode' if spot.explode else ''} {shape}"
    text = next((unquote_plus(v) for k, v in pairs if unquote_plus(k) == spot.name), None)
    # 3.0 and 3.1 disagree on objects without a style: fields of their own, or JSON
    if not explicit and isinstance(sent, dict | list) and is_json_of(text, sent):
        return Finding("form object as JSON", True)
    if not explicit and isinstance(sent, dict) and text is not None:
        return Finding("form object as JSON", False, detail=f"{sent!r:.200} came as {text:.200}")
    if not explicit and isinstance(sent, list) and _json_members(spot, pairs, sent):
        return Finding("form array of objects as JSON", True)
    if why := why_not(spot, sent):
        return Finding(feature, False, why)
    try:
        read = reading.in_query(spot, pairs, shape, others)
    except Unreadable as error:
        return Finding(feature, False, detail=f"{sent!r:.200}: {error}")
    good = says(read, sent)
    return Finding(
        feature, good, detail="" if good else f"{spot.name}: {sent!r:.200} came as {read!r:.200}"
    )


def _json_members(spot: Spot, pairs: list[tuple[str, str]], sent: list[Any]) -> bool:
    read = [unquote_plus(v) for k, v in pairs if unquote_plus(k) == spot.name]
    nested = any(isinstance(one, dict | list) for one in sent)
    return nested and len(read) == len(sent) and all(map(is_json_of, read, sent))


def shape_of(spot: Spot, sent: Any) -> str:
    """What the receiver takes it for: as described, or as it must be told out of band."""
    actual = {dict: "object", list: "array"}.get(type(sent), "scalar")
    stated = kind(spot.schema)
    return stated if stated and stated == actual else actual
