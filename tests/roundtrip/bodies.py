"""What came in a body, and whether it says what was sent."""

from collections.abc import Iterator
from typing import Any

from openapi_core.deserializing.media_types import media_type_deserializers

from tests.fuzz.oracle import same
from tests.roundtrip.described import Content
from tests.roundtrip.facts import is_file
from tests.roundtrip.finding import Finding
from tests.roundtrip.forms import FORM, judge_form
from tests.roundtrip.markup import says_xml
from tests.roundtrip.multipart import file_bytes, judge_parts


def judge(content: Content, content_type: str, body: bytes, sent: Any) -> Iterator[Finding]:
    """One finding for a body that is one value; one for each field of a form."""
    essence = content.essence
    if essence == FORM and isinstance(sent, dict):
        yield from judge_form(content, body.decode(), sent)
    elif essence.startswith("multipart/") and isinstance(sent, dict):
        yield from judge_parts(content, content_type, body, sent)
    else:
        yield _whole(content, body, sent)


def is_json(essence: str) -> bool:
    return essence in ("application/json", "text/json", "*/*") or essence.endswith("+json")


def _whole(content: Content, body: bytes, sent: Any) -> Finding:
    essence, feature = content.essence, f"body {content.essence}"
    if is_json(essence):
        return _judge_body(
            "body JSON" if essence == "application/json" else feature, body, sent, _json
        )
    if essence.endswith(("/xml", "+xml")):
        if why := _no_xml(sent):
            return Finding("body XML", False, why)
        return _judge_body("body XML", body, sent, lambda b, s: says_xml(b, content.schema, s))
    if is_file(content.schema, media_type=essence):
        return _judge_body(f"body bytes, {essence}", body, sent, lambda b, s: b == file_bytes(s))
    if isinstance(sent, str):
        return _judge_body(f"body text, {essence}", body, sent, lambda b, s: b.decode() == s)
    return _judge_body(f"{feature}, no text", body, sent, _json)


def _json(body: bytes, sent: Any) -> bool:
    return same(media_type_deserializers["application/json"](body), sent)


def _judge_body(feature: str, body: bytes, sent: Any, check: Any) -> Finding:
    try:
        arrived = check(body, sent)
    except (ValueError, UnicodeDecodeError, SyntaxError) as error:
        return Finding(feature, False, detail=f"sent {sent!r:.200}, came {body!r:.200}: {error}")
    return Finding(
        feature, arrived, detail="" if arrived else f"{sent!r:.300} came as {body!r:.300}"
    )


def _no_xml(sent: Any) -> str | None:
    """XML has no null, and no array that is not there."""
    if isinstance(sent, dict | list):
        inner = list(sent.values()) if isinstance(sent, dict) else sent
        if not inner:
            return "XML has no empty array or object"
        return next((why for one in inner if (why := _no_xml(one))), None)
    if isinstance(sent, str) and any(ord(char) < 32 for char in sent):
        return "control characters are not XML, or normalised"
    return "XML has no null" if sent is None else None
