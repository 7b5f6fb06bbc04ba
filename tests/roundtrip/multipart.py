"""Multipart forms, read by werkzeug: parts, files, their names and types."""

import base64
import io
from collections.abc import Iterator
from email.message import Message
from typing import Any
from urllib.parse import quote

from werkzeug.datastructures import MultiDict
from werkzeug.formparser import FormDataParser

from tests.roundtrip import reading
from tests.roundtrip.compare import is_json_of, nothing, says
from tests.roundtrip.described import Content, Node, Spot
from tests.roundtrip.expressible import why_not
from tests.roundtrip.facts import is_file, kind
from tests.roundtrip.finding import Finding
from tests.roundtrip.forms import fields, shape_of
from tests.roundtrip.reading import Unreadable


def file_bytes(argument: Any) -> bytes:
    """What a file argument holds."""
    if isinstance(argument, dict):
        held = argument.get("data", argument.get("text", ""))
        return str(held).encode() if "text" in argument else file_bytes(held)
    text = str(argument)
    return base64.b64decode(text.partition(",")[2] if text.startswith("data:") else text)


def judge_parts(content: Content, content_type: str, body: bytes, sent: Any) -> Iterator[Finding]:
    header = Message()
    header["content-type"] = content_type
    options = {key: str(value) for key, value in header.get_params([])[1:]}
    if header.get_content_type() != content.essence or "boundary" not in options:
        yield Finding("multipart", False, detail=f"Content-Type {content_type}")
        return
    parser = FormDataParser(stream_factory=lambda *_, **__: io.BytesIO(), silent=False)
    _, form, files = parser.parse(io.BytesIO(body), "multipart/form-data", len(body), options)
    for name, (spot, encoding) in fields(content, list(sent)).items():
        value = sent[name]
        if _is_file(content, spot, encoding):
            yield _judge_files(name, value, files.getlist(name))
        else:
            styled = content.styled and _has_style(encoding)
            yield _judge_style(spot, form, value) if styled else _part(spot, form, value)
    strangers = (set(form) | set(files)) - set(sent)
    if any(_has_style(encoding) for _, encoding in fields(content, list(sent)).values()):
        return  # they may be members of an object
    yield Finding("nothing unasked in a multipart", not strangers, detail=str(strangers)[:200])


def files_among(content: Content, names: list[str]) -> list[str]:
    """The properties of a multipart form that are files."""
    described = fields(content, names)
    return [name for name in names if _is_file(content, *described[name])]


def _is_file(content: Content, spot: Spot, encoding: Node) -> bool:
    """3.1, 4.8.15.1.1: without a type it is an octet stream."""
    untyped = content.styled and spot.schema.value in ({}, True)
    unsaid = spot.name == "file" and spot.schema.text("type") == "string"  # Stripe's, a mere text
    return (
        is_file(spot.schema)
        or untyped
        or unsaid
        or (_names_a_file(encoding) and not kind(spot.schema))
    )


def _names_a_file(encoding: Node) -> bool:
    stated = encoding.text("contentType")
    return stated.startswith(("image/", "audio/", "video/", "application/octet-stream"))


def _judge_files(name: str, sent: Any, files: list[Any]) -> Finding:
    wanted = [one for one in (sent if isinstance(sent, list) else [sent]) if one is not None]
    feature = "multipart files" if isinstance(sent, list) else "multipart file"
    if not wanted:
        return Finding(feature, False, "no file")
    read = [file.stream.read() for file in files]
    for one, file in zip(wanted, files, strict=False):
        file.stream.seek(0)
        if isinstance(one, dict) and "filename" in one and file.filename != one["filename"]:
            return Finding(feature, False, detail=f"{one['filename']} came as {file.filename}")
        mime = isinstance(one, dict) and one.get("mimeType")
        if mime and file.mimetype != mime:
            return Finding(feature, False, detail=f"{mime} came as {file.mimetype}")
    good = read == [file_bytes(one) for one in wanted]
    return Finding(
        feature, good, detail="" if good else f"{name}: {sent!r:.120} came as {read!r:.120}"
    )


def _has_style(encoding: Node) -> bool:
    return any(encoding.get(key).value is not None for key in ("style", "explode"))


def _judge_style(spot: Spot, form: MultiDict[str, str], sent: Any) -> Finding:
    """Whether it is encoded as in a query is a matter of taste (3.1, 4.8.15.1.2): both will do."""
    shape = shape_of(spot, sent)
    feature = f"multipart {spot.style}{' explode' if spot.explode else ''} {shape}"
    if why := why_not(spot, sent):
        return Finding(feature, False, why)
    plain = list(form.items(multi=True))
    others = [name for name in form if isinstance(sent, dict) and name not in sent]
    for encode in (lambda text: quote(text, safe=",|[]"), lambda text: text.replace("+", "%2B")):
        pairs = [(encode(name), encode(value)) for name, value in plain]
        try:
            if says(reading.in_query(spot, pairs, shape, others), sent):
                return Finding(feature, True)
        except Unreadable:
            continue
    return Finding(feature, False, detail=f"{spot.name}: {sent!r:.200} came in {plain!r:.300}")


def _part(spot: Spot, form: MultiDict[str, str], sent: Any) -> Finding:
    read = form.getlist(spot.name)
    shape = {dict: "object", list: "array"}.get(type(sent), "scalar")
    if nothing(sent):
        return Finding("multipart empty", False, "null and nothing have no part")
    members = sent if isinstance(sent, list) else [sent]
    if isinstance(sent, list) and len(read) == 1 and is_json_of(read[0], sent):
        return Finding("multipart array as JSON", True)
    good = len(read) == len(members) and all(map(_says_part, read, members))
    detail = "" if good else f"{spot.name}: {sent!r:.200} came as {read!r:.200}"
    return Finding(f"multipart {shape}", good, detail=detail)


def _says_part(read: str, sent: Any) -> bool:
    return is_json_of(read, sent) if isinstance(sent, dict | list) else says(read, sent)
