"""Values as XML, by the XML Objects of a description (OpenAPI 3.1, section 4.8.26). Pure."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from gateway.upstreams.rest.parameter_styles import plain
from schemas.binding import Body, Xml
from schemas.errors import InvalidParams

DEPTH_LIMIT = 64
_PLAIN = Xml()
_NAME = re.compile(r"[^\W\d][\w.-]*")  # our own pattern; a part of what XML 1.0 allows
_DECLARATION = '<?xml version="1.0" encoding="UTF-8"?>\n'

_NOT = (0xFFFE, 0xFFFF)


def document(body: Body, value: Any) -> bytes:
    """The XML body for `value`. Raises InvalidParams for what XML cannot express."""
    writer = _Writer(body.xml_types)
    xml = body.xml or _PLAIN
    text = "".join(writer.element("root", xml, value, _Around()))
    return (_DECLARATION + text).encode()


@dataclass(frozen=True, slots=True)
class _Around:
    """Context of an element: its depth, and the declared namespace prefixes."""

    depth: int = 0
    prefixes: frozenset[str] = frozenset()

    def within(self, xml: Xml) -> "_Around":
        own_prefix = {xml.prefix} if xml.prefix and xml.namespace else set()
        return _Around(self.depth + 1, self.prefixes | own_prefix)

    def deeper(self) -> "_Around":
        return _Around(self.depth + 1, self.prefixes)

    def qualify(self, xml: Xml, name: str) -> str:
        """The qualified name; an undeclared prefix is dropped, as it would make the XML invalid."""
        name = xml.name or name
        if not _NAME.fullmatch(name):
            raise InvalidParams(f"{name[:80]!r} is no name of an XML element")
        return f"{xml.prefix}:{name}" if xml.prefix in self.prefixes else name


class _Writer:
    def __init__(self, types: Mapping[str, Xml]) -> None:
        self._types = types

    def element(self, name: str, xml: Xml, value: Any, around: _Around) -> Iterator[str]:
        """`value` as one element, or one for each item of an array that is not wrapped."""
        if around.depth > DEPTH_LIMIT:
            raise InvalidParams(f"XML: values are nested deeper than {DEPTH_LIMIT} levels")
        xml = self._of(xml)
        if not isinstance(value, list):
            yield self._one(name, xml, value, around)
        elif xml.wrapped or around.depth == 0:
            outer = around.within(xml)
            items = "".join(self._items(xml.name or name, xml, value, outer))
            yield _tag(outer.qualify(xml, name), _namespace_attributes(xml), items)
        else:  # the name of an array is that of its wrapping element only
            yield from self._items(name, xml, value, around.deeper())

    def _items(self, name: str, xml: Xml, value: list[Any], around: _Around) -> Iterator[str]:
        for member in value:
            yield from self.element(name, xml.items or _PLAIN, member, around)

    def _one(self, name: str, xml: Xml, value: Any, around: _Around) -> str:
        around = around.within(xml)
        attributes, tag = _namespace_attributes(xml), around.qualify(xml, name)
        if not isinstance(value, dict):
            return _tag(tag, attributes, _escape_text(value))
        inner: list[str] = []
        for key, member in value.items():
            of = self._of(xml.properties.get(key, _PLAIN))
            if of.attribute and not isinstance(member, dict | list):
                if member is not None:
                    attributes |= _namespace_attributes(of) if of.prefix else {}
                    attributes[around.within(of).qualify(of, key)] = _quote_attribute(member)
            elif of.text and not isinstance(member, dict | list):
                inner.append(_escape_text(member))
            else:
                inner.extend(self.element(key, of, member, around))
        return _tag(tag, attributes, "".join(inner))

    def _of(self, xml: Xml) -> Xml:
        """`xml`, with missing members from the type that it refers to."""
        referenced = self._types.get(xml.type) if xml.type is not None else None
        if referenced is None:
            return xml
        return Xml(
            name=xml.name or referenced.name,
            namespace=xml.namespace or referenced.namespace,
            prefix=xml.prefix or referenced.prefix,
            attribute=xml.attribute or referenced.attribute,
            text=xml.text or referenced.text,
            wrapped=xml.wrapped or referenced.wrapped,
            properties=referenced.properties,
            items=referenced.items,
        )


def _namespace_attributes(xml: Xml) -> dict[str, str]:
    if not xml.namespace:
        return {}
    return {f"xmlns:{xml.prefix}" if xml.prefix else "xmlns": _quote_attribute(xml.namespace)}


def _tag(tag: str, attributes: Mapping[str, str], inner: str) -> str:
    opened = "".join([tag, *(f" {name}={text}" for name, text in attributes.items())])
    return f"<{opened}>{inner}</{tag}>" if inner else f"<{opened}/>"


def _escape_text(value: Any) -> str:
    return "" if value is None else escape(_legal(plain(value)), {"\r": "&#13;"})


def _quote_attribute(value: Any) -> str:
    return quoteattr(_legal(plain(value)), {"\r": "&#13;"})


def _legal(text: str) -> str:
    """XML 1.0, section 2.2: some characters cannot even be escaped."""
    for char in text:
        code = ord(char)
        if (code < 32 and char not in "\t\n\r") or 0xD800 <= code <= 0xDFFF or code in _NOT:
            raise InvalidParams(f"XML cannot hold the character U+{code:04X}")
    return text
