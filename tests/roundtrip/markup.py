"""Whether an XML body says a value, by the XML Objects of its schema (OpenAPI 3.1, 4.8.26)."""

from typing import Any
from xml.etree.ElementTree import Element, fromstring

from tests.roundtrip.compare import says
from tests.roundtrip.described import Node
from tests.roundtrip.facts import property_of


def says_xml(body: bytes, schema: Node, sent: Any) -> bool:
    """Raises SyntaxError (ElementTree's ParseError) for what is no XML."""
    root, xml = fromstring(body.decode()), schema.get("xml")
    named = not xml.text("name") or root.tag == _qualified_name(xml.text("name"), xml)
    return named and _says(root, schema, sent)


def _says(element: Element, schema: Node, sent: Any) -> bool:
    if isinstance(sent, dict):
        return all(_member(element, schema, name, value) for name, value in sent.items())
    if isinstance(sent, list):  # the outermost one: its members are the children
        return _each(list(element), schema.get("items"), sent)
    return says(element.text or "", sent)


def _member(element: Element, schema: Node, name: str, sent: Any) -> bool:
    inner = property_of(schema, name)
    xml = inner.get("xml")
    called = xml.text("name", name)
    if xml.get("attribute").value is True or xml.text("nodeType") == "attribute":
        return says(_of(element.attrib, _qualified_name(called, xml)) or "", sent)
    if xml.text("nodeType") in ("text", "cdata"):
        return says(element.text or "", sent)
    if not isinstance(sent, list):
        found = element.findall(_qualified_name(called, xml))
        return len(found) == 1 and _says(found[0], inner, sent)
    items = inner.get("items")
    label = items.get("xml").text("name", name if xml.get("wrapped").value is not True else called)
    around = [element]
    if xml.get("wrapped").value is True:
        around = element.findall(_qualified_name(called, xml))
    elif items.get("xml").get("name").value is None:
        label = called
    spelled = _qualified_name(label, items.get("xml"))
    return len(around) == 1 and _each(around[0].findall(spelled), items, sent)


def _each(elements: list[Element], items: Node, sent: list[Any]) -> bool:
    told = zip(elements, sent, strict=False)
    return len(elements) == len(sent) and all(_says(one, items, value) for one, value in told)


def _qualified_name(name: str, xml: Node) -> str:
    """As ElementTree writes names in a namespace."""
    namespace = xml.text("namespace")
    return f"{{{namespace}}}{name}" if namespace else name


def _of(attributes: dict[str, str], name: str) -> str | None:
    return attributes.get(name)
