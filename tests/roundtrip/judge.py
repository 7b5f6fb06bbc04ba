"""One call: what was sent as arguments, what came over the wire, what became of each value."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import unquote, unquote_plus

from schemas.binding import Body, OpenAPIBinding
from tests.roundtrip import bodies, reading
from tests.roundtrip.compare import is_json_of, says
from tests.roundtrip.described import Content, Described, Node, Spot
from tests.roundtrip.echo import Received
from tests.roundtrip.expressible import why_not
from tests.roundtrip.facts import is_file, kind, properties_of
from tests.roundtrip.finding import Finding
from tests.roundtrip.forms import FORM
from tests.roundtrip.multipart import files_among
from tests.roundtrip.reading import Unreadable

Json = Mapping[str, Any]


class Call:
    """An operation as described, and as the importer bound it."""

    def __init__(self, described: Described, binding: OpenAPIBinding) -> None:
        self.described = described
        self.binding = binding
        by_place = {
            (spot.location, _fold_name(spot.name, spot.location)): spot for spot in described.spots
        }
        self.spots: dict[str, Spot] = {}  # argument -> what it feeds
        for one in binding.parameters:
            if one.argument and (
                spot := by_place.get((one.location, _fold_name(one.name, one.location)))
            ):
                self.spots[one.argument] = spot
        self.content = _content(described, binding.body) if binding.body else None

    @property
    def files(self) -> frozenset[str]:
        """The arguments whose values are files, as the generator wants them named."""
        body, content = self.binding.body, self.content
        if body is None or content is None:
            return frozenset()
        if body.properties is None and content.essence.startswith("multipart/"):
            names = list(properties_of(content.schema))
            return frozenset(f"{body.argument}.{name}" for name in files_among(content, names))
        if body.properties is None:
            told = self._judged_content or content
            whole = not bodies.is_json(told.essence) and not told.essence.endswith("xml")
            form = told.essence.startswith("multipart/") or told.essence == FORM
            file = whole and not form and is_file(told.schema, media_type=told.essence)
            return frozenset([body.argument] if file and body.argument else [])
        if not content.essence.startswith("multipart/"):
            return frozenset()
        arguments = {name: argument for argument, name in body.properties}
        return frozenset(arguments[name] for name in files_among(content, list(arguments)))

    @property
    def _judged_content(self) -> Content | None:
        """Bytes or text, where the description leaves it open: as the importer has it."""
        body, content = self.binding.body, self.content
        if body is None or content is None or not body.file:
            return content
        schema = Node(
            {"type": "string", "format": "binary"}, content.schema.path, content.schema.files
        )
        range_ = "application/octet-stream" if "*" in content.essence else content.media_type
        return replace(content, schema=schema, media_type=range_)

    def find_unoffered(self) -> Iterator[Finding]:
        """Whether all that is described can be said by a caller."""
        bound = {
            (one.location, _fold_name(one.name, one.location)) for one in self.binding.parameters
        }
        for spot in self.described.spots:
            there = (spot.location, _fold_name(spot.name, spot.location)) in bound
            yield Finding(f"offered: {spot.location} parameter", there, detail=spot.name)

    def judge(self, received: Received, arguments: Json) -> Iterator[Finding]:
        method = received.method == self.binding.method
        yield Finding("method", method, detail=received.method)
        path, _, query = received.target.partition("?")
        if self.described.prefix:
            prefix = self.described.prefix
            yield Finding("server of the operation", path.startswith(f"{prefix}/"), detail=path)
            path = path.removeprefix(prefix)
        try:
            variables = reading.variables(self.described.path, path)
        except Unreadable as error:
            yield Finding("path", False, detail=str(error))
            variables = {}
        yield from self._values(received, arguments, variables, reading.pairs(query))
        yield from self._nothing_else(arguments, reading.pairs(query))
        yield from self._body(received, arguments)

    def inexpressible(self, arguments: Json) -> bool:
        """Whether a refusal would be right."""
        return any(
            why_not(self.spots[key], value) for key, value in arguments.items() if key in self.spots
        )

    def _values(
        self,
        received: Received,
        arguments: Json,
        variables: Mapping[str, str],
        query: reading.Pairs,
    ) -> Iterator[Finding]:
        cookies = reading.pairs("; ".join(received.all("cookie")), ";")
        for argument, sent in arguments.items():
            spot = self.spots.get(argument)
            if spot is None:
                continue
            shape = _shape(spot, sent)
            if spot.location == "querystring":
                yield from _whole_query(spot, received.target.partition("?")[2], sent)
                continue
            others = [one.name for one in self.described.spots if one.name != spot.name]
            try:
                match spot.location:
                    case "path":
                        read = reading.in_path(spot, variables.get(spot.name, ""), shape)
                    case "header":
                        read = reading.in_header(spot, received.all(spot.name), shape)
                    case "cookie":
                        read = reading.in_cookie(spot, cookies, shape, others)
                    case _:
                        read = reading.in_query(spot, query, shape, others)
            except Unreadable as error:
                read = error
            yield self._compare_values(spot, shape, sent, read)

    def _compare_values(self, spot: Spot, shape: str, sent: Any, read: Any) -> Finding:
        feature = _feature(spot, shape)
        if why := self._why_not(spot, sent):
            return Finding(feature, False, why)
        good = is_json_of(read, sent) or read == sent if spot.media_type else says(read, sent)
        detail = "" if good else f"{spot.name}: {sent!r:.200} came as {read!r:.200}"
        return Finding(feature, good, detail=detail)

    def _why_not(self, spot: Spot, sent: Any) -> str | None:
        if why := why_not(spot, sent):
            return why
        segment = next((s for s in self.described.path.split("/") if f"{{{spot.name}}}" in s), "")
        if spot.location == "path" and segment.count("{") > 1 and set(str(sent)) & set("._-~:;,@"):
            return "a value that holds what divides the variables of a segment"
        names = {one.name for one in self.described.spots}
        if isinstance(sent, dict) and spot.explode and spot.style in ("form", "cookie"):
            return "a member named like a parameter" if names & sent.keys() else None
        return None

    def _nothing_else(self, arguments: Json, query: reading.Pairs) -> Iterator[Finding]:
        spots = [spot for key, spot in self.spots.items() if key in arguments]
        query_spots = [spot for spot in spots if spot.location in ("query", "querystring")]
        if any(_swallows(spot) for spot in query_spots):
            return
        fixed = reading.pairs(self.described.path.partition("?")[2])
        known = {spot.name for spot in query_spots} | {name for name, _ in fixed}
        deep = {spot.name for spot in query_spots if spot.style == "deepObject"}
        names = [unquote_plus(name) for name, _ in query]
        strangers = [n for n in names if n not in known and n.partition("[")[0] not in deep]
        yield Finding("nothing unasked in the query", not strangers, detail=str(strangers)[:200])

    def _body(self, received: Received, arguments: Json) -> Iterator[Finding]:
        body = self.binding.body
        sent = _sent_body(body, arguments) if body else None
        if body is None or self.content is None or sent is None:
            if body is None or not body.required:
                yield Finding("no body", not received.body, detail=f"{received.body!r:.100}")
            return
        stated = received.one("content-type") or ""
        essence = stated.partition(";")[0].strip().lower()
        fits = essence == self.content.essence or "*" in self.content.essence
        yield Finding("content type", fits, detail=f"{stated} for {self.content.media_type}")
        yield from bodies.judge(
            self._judged_content or self.content, stated, received.body, sent[0]
        )


def _whole_query(spot: Spot, query: str, sent: Any) -> Iterator[Finding]:
    """3.2, section 4.12: the query is one value, written as its media type says."""
    content = Content(spot.media_type or FORM, spot.schema, spot.schema.get("encoding"))
    text = query if content.essence == FORM else unquote(query)
    for one in bodies.judge(content, "", text.encode(), sent):
        yield replace(one, feature=f"querystring: {one.feature}")


def _sent_body(body: Body, arguments: Json) -> tuple[Any] | None:
    """The body's value in a tuple; None when nothing was said about it."""
    if body.properties is not None:
        value = {name: arguments[key] for key, name in body.properties if key in arguments}
        return (value,) if value or body.required else None
    if body.argument is not None and body.argument in arguments:
        return (arguments[body.argument],)
    return None


def _content(described: Described, body: Body) -> Content | None:
    essence = body.media_type.partition(";")[0].strip().lower()
    for one in described.contents:
        if one.essence == essence:
            return one
    ranges = (f"{essence.partition('/')[0]}/*", "*/*", "application/*")
    return next((one for key in ranges for one in described.contents if one.essence == key), None)


def _swallows(spot: Spot) -> bool:
    """Whether its members' names may be anything."""
    return spot.location == "querystring" or (spot.explode and kind(spot.schema) in ("object", ""))


def _shape(spot: Spot, sent: Any) -> str:
    return {dict: "object", list: "array"}.get(type(sent), "scalar")


def _feature(spot: Spot, shape: str) -> str:
    if spot.media_type is not None:
        return f"{spot.location} content"
    exploded = " explode" if spot.explode and shape != "scalar" else ""
    return f"{spot.location} {spot.style}{exploded} {shape}"


def _fold_name(name: str, location: str) -> str:
    return name.lower() if location == "header" else name
