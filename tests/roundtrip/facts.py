"""What a schema says about its values, as far as one has to know to read them."""

from collections.abc import Iterator

from tests.roundtrip.described import Node

_LEVELS = 12


def kind(schema: Node, level: int = 0) -> str:
    """ "array", "object" or "scalar"; "" where the schema leaves it open."""
    if level > _LEVELS or not isinstance(schema.value, dict):
        return ""
    stated = schema.get("type").value
    kinds = {stated} if isinstance(stated, str) else set(stated or ()) - {"null"}
    if kinds:
        one = {item if item in ("array", "object") else "scalar" for item in kinds}
        return one.pop() if len(one) == 1 else ""
    if schema.get("enum").value:
        return "scalar"
    for every in schema.get("allOf").members():
        if said := kind(every, level + 1):
            return said
    for union in ("oneOf", "anyOf"):
        said_by = {kind(one, level + 1) for one in schema.get(union).members()}
        if len(said_by) == 1:
            return said_by.pop()
    return "object" if schema.get("properties").value else ""


def is_file(schema: Node, *, media_type: str = "") -> bool:
    """Whether values of it are bytes rather than text."""
    value = schema.value if isinstance(schema.value, dict) else {}
    if schema.value is not None and value.get("type") == "file":
        return True
    if value.get("type") == "array":
        return is_file(schema.get("items"), media_type=media_type)
    text = value.get("type", "string") in ("string", ["string", "null"])
    if text and value.get("format") == "binary":
        return True
    if "contentEncoding" in value:
        return False
    if text and "contentMediaType" in value and "format" not in value:
        return not str(value["contentMediaType"]).startswith(("text/", "application/json"))
    return bool(media_type) and not value and not media_type.startswith("text/")


def property_of(schema: Node, name: str, level: int = 0) -> Node:
    """The schema of a property, looked for in all parts of an object's schema."""
    found = schema.get("properties").get(name)
    if found.value is not None or level > _LEVELS:
        return found
    for combining in ("allOf", "oneOf", "anyOf"):
        for part in schema.get(combining).members():
            inner = property_of(part, name, level + 1)
            if inner.value is not None:
                return inner
    rest = schema.get("additionalProperties")
    return rest if isinstance(rest.value, dict) else found


def properties_of(schema: Node, level: int = 0) -> Iterator[str]:
    """The names of the properties that any part of an object's schema describes."""
    yield from schema.get("properties").value or ()
    for combining in ("allOf", "oneOf", "anyOf") if level <= _LEVELS else ():
        for part in schema.get(combining).members():
            yield from properties_of(part, level + 1)
