"""Bodies as XML, read back by the standard library; examples of OpenAPI 3.1.1, section 4.8.26."""

from xml.etree import ElementTree

import pytest

from gateway.upstreams.rest.upstream import RequestTemplate
from schemas.binding import Body, OpenAPIBinding, Xml
from schemas.errors import InvalidParams

DECLARED = b'<?xml version="1.0" encoding="UTF-8"?>\n'


def write_xml(value, xml, **types):
    body = Body("application/xml", argument="body", xml=xml, xml_types=types)
    data = RequestTemplate(OpenAPIBinding("POST", "/x", (), body)).request({"body": value}).body
    assert data.startswith(DECLARED)
    ElementTree.fromstring(data)  # well-formed, prefixes declared
    return data.removeprefix(DECLARED).decode()


def person(**properties):
    return Xml(name="Person", properties=properties)


@pytest.mark.parametrize(
    ("xml", "value", "text"),
    [
        (person(), {"name": "x"}, "<Person><name>x</name></Person>"),
        (Xml(), {"a": 1.0}, "<root><a>1</a></root>"),
        (person(id=Xml(attribute=True)), {"id": 1, "n": "x"}, '<Person id="1"><n>x</n></Person>'),
        (person(n=Xml(name="xml-n")), {"n": 1}, "<Person><xml-n>1</xml-n></Person>"),
        (person(v=Xml(text=True), u=Xml(attribute=True)), {"v": "5", "u": "kg"},
         '<Person u="kg">5</Person>'),
        (person(n=Xml(namespace="http://e.com/s", prefix="s")), {"n": "x"},
         '<Person><s:n xmlns:s="http://e.com/s">x</s:n></Person>'),
        (Xml(name="P", namespace="http://e.com/d"), {"n": "x"},
         '<P xmlns="http://e.com/d"><n>x</n></P>'),
        # a prefix that an outer element declares, and one that nobody does
        (Xml(name="P", namespace="http://e.com/s", prefix="s", properties={"n": Xml(prefix="s")}),
         {"n": 1}, '<s:P xmlns:s="http://e.com/s"><s:n>1</s:n></s:P>'),
        (person(n=Xml(prefix="s")), {"n": 1}, "<Person><n>1</n></Person>"),
        (person(n=Xml(attribute=True, namespace="http://e.com/s", prefix="s")), {"n": "1"},
         '<Person xmlns:s="http://e.com/s" s:n="1"/>'),
        (person(), {"a": None, "b": True, "c": {"d": {}}},
         "<Person><a/><b>true</b><c><d/></c></Person>"),
        (person(a=Xml(attribute=True)), {"a": None}, "<Person/>"),
        (person(), {"a": "<&>]]>\r"}, "<Person><a>&lt;&amp;&gt;]]&gt;&#13;</a></Person>"),
        (person(a=Xml(attribute=True)), {"a": "\"'<\n"},
         """<Person a="&quot;'&lt;&#10;"/>"""),
    ],
)  # fmt: skip
def test_elements_and_attributes(xml, value, text):
    assert write_xml(value, xml) == text


ANIMAL = Xml(name="animal")


@pytest.mark.parametrize(
    ("array", "text"),
    [
        (Xml(), "<animals>a</animals><animals>b</animals>"),
        (Xml(items=ANIMAL), "<animal>a</animal><animal>b</animal>"),
        (Xml(name="aliens", items=ANIMAL), "<animal>a</animal><animal>b</animal>"),
        (Xml(wrapped=True), "<animals><animals>a</animals><animals>b</animals></animals>"),
        (Xml(wrapped=True, items=ANIMAL),
         "<animals><animal>a</animal><animal>b</animal></animals>"),
        (Xml(name="aliens", wrapped=True, items=ANIMAL),
         "<aliens><animal>a</animal><animal>b</animal></aliens>"),
        (Xml(name="aliens", wrapped=True), "<aliens><aliens>a</aliens><aliens>b</aliens></aliens>"),
    ],
)  # fmt: skip
def test_arrays(array, text):
    value = {"animals": ["a", "b"]}
    assert write_xml(value, person(animals=array)) == f"<Person>{text}</Person>"


def test_an_array_at_the_root_is_one_element():
    assert (
        write_xml([1, 2], Xml(name="ids", items=Xml(name="id")))
        == "<ids><id>1</id><id>2</id></ids>"
    )


def test_a_type_may_hold_itself():
    node = Xml(name="Node", properties={"child": Xml(type="Node", name="child")})
    value = {"child": {"child": {"v": 1}}}
    assert write_xml(value, Xml(type="Node"), Node=node) == (
        "<Node><child><child><v>1</v></child></child></Node>"
    )


def test_a_property_of_a_named_type_is_called_as_the_type_says():
    value = {"category": {"id": 1}, "tags": [{"id": 2}]}
    pet = Xml(
        name="Pet",
        properties={
            "category": Xml(type="Category"),
            "tags": Xml(wrapped=True, items=Xml(type="Tag")),
        },
    )
    text = write_xml(value, pet, Category=Xml(name="cat"), Tag=Xml(name="tag"))
    assert text == "<Pet><cat><id>1</id></cat><tags><tag><id>2</id></tag></tags></Pet>"


@pytest.mark.parametrize("name", ["a b", "a><b", "1a", "", "a:b", "/"])
def test_a_name_cannot_forge_markup(name):
    with pytest.raises(InvalidParams, match="is no name of an XML element"):
        write_xml({name: 1}, Xml())


@pytest.mark.parametrize("character", ["\0", "\x1b", "\ufffe"])
@pytest.mark.parametrize("attribute", [True, False])
def test_characters_illegal_in_xml_are_refused(character, attribute):
    with pytest.raises(InvalidParams, match=r"XML cannot hold the character U\+"):
        write_xml({"a": f"x{character}"}, person(a=Xml(attribute=attribute)))


def test_deep_values_are_refused():
    value = {}
    for _ in range(100):
        value = {"a": value}
    with pytest.raises(InvalidParams, match="nested deeper than 64"):
        write_xml(value, Xml())


def test_text_bodies_are_sent_verbatim():
    body = Body("application/xml", argument="body", xml=Xml())
    assert (
        RequestTemplate(OpenAPIBinding("POST", "/x", (), body)).request({"body": "<a/>"}).body
        == b"<a/>"
    )
