"""Several files as one document."""

from typing import Any

import pytest

from registry.importers.openapi import parse, read
from registry.importers.openapi.document import MissingReference, OpenApiDocument
from registry.importers.openapi.multi_file_documents import (
    Files,
    join,
    original_reference,
    scan,
    stands_alone,
)

ROOT = """
openapi: 3.1.0
info: {title: T, version: 1}
paths:
"""


def together(*, unread: dict[str, str] | None = None, **files: str) -> Files:
    """The first one is the entry; `__` in a keyword is a slash, and `.yaml` is added."""
    named = {f"{key.replace('__', '/')}.yaml": text for key, text in files.items()}
    found = Files(next(iter(named)))
    for name, text in named.items():
        found.add(scan(name, parse(text.encode(), name)))
    for name, reason in (unread or {}).items():
        found.miss(name, reason)
    return found


def document(**files: Any) -> OpenApiDocument:
    return OpenApiDocument(together(**files).assemble())


@pytest.mark.parametrize(
    ("base", "reference", "name"),
    [
        ("openapi.yaml", "pet.yaml", "pet.yaml"),
        ("openapi.yaml", "./models/pet.yaml", "models/pet.yaml"),
        ("models/pet.yaml", "../common/id.json", "common/id.json"),
        ("models/pet.yaml", "owner.yaml", "models/owner.yaml"),
        ("openapi.yaml", "my%20pet.yaml", "my pet.yaml"),
        ("openapi.yaml", "pet.yaml?v=2", "pet.yaml"),
        ("models/pet.yaml", "../../secret", "../secret"),
        ("models/pet.yaml", "/etc/passwd", "/etc/passwd"),
        ("openapi.yaml", "https://a.com/pet.yaml", "https://a.com/pet.yaml"),
        ("https://a.com/v1/openapi.yaml", "pet.yaml", "https://a.com/v1/pet.yaml"),
        ("https://a.com/v1/openapi.yaml", "/pet.yaml", "https://a.com/pet.yaml"),
        ("https://a.com/v1/openapi.yaml", "//[", "//["),
        ("openapi.yaml", "file:///etc/passwd", "file:///etc/passwd"),
    ],
)
def test_a_reference_names_a_file(base, reference, name):
    assert join(base, reference) == name


def test_references_lead_from_file_to_file():
    found = document(
        openapi=ROOT + "  /pets: {$ref: paths/pets.yaml}",
        paths__pets="get: {operationId: pets, parameters: [{$ref: '../common.yaml#/limit'}]}",
        common="limit: {name: limit, in: query, schema: {$ref: '#/types/Limit'}}\n"
        "types: {Limit: {type: integer}}",
    )
    [draft] = read(found.root).drafts
    assert draft.input_schema["properties"]["limit"].keys() == {"$ref"}
    assert list(draft.input_schema["$defs"].values()) == [{"type": "integer"}]


def test_a_circle_over_files_stays_a_circle():
    found = document(
        openapi=ROOT + "  /a: {post: {requestBody: {content: {application/json: {schema: "
        "{type: array, items: {$ref: node.yaml}}}}}}}",
        node="{type: object, properties: {next: {$ref: 'other.yaml#/Node'}}}",
        other="Node: {$ref: node.yaml}",
    )
    [draft] = read(found.root).drafts
    assert len(draft.input_schema["$defs"]) == 2


def test_included_files_refer_back_to_the_first_file():
    found = document(
        openapi="{openapi: 3.1.0, paths: {}, components: {schemas: {Pet: {type: string}}}, "
        "a: {$ref: x/y.yaml}}",
        x__y="{$ref: '../openapi.yaml#/components/schemas/Pet'}",
    )
    assert found.resolve(found.root["a"]) == {"type": "string"}


def test_whole_paths_and_components_may_lie_in_a_file():
    found = document(
        openapi="{openapi: 3.1.0, paths: {$ref: paths.yaml}, components: {$ref: all.yaml}}",
        paths="/a: {get: {$ref: get.yaml}}",
        get="{operationId: getA, parameters: [{$ref: 'openapi.yaml#/components/parameters/p'}]}",
        all="parameters: {p: {name: p, in: query, schema: {type: string}}}",
    )
    [draft] = read(found.root).drafts
    assert (draft.name, list(draft.input_schema["properties"])) == ("getA", ["p"])


def test_a_pointer_with_a_tilde_leads_into_paths():
    found = document(
        openapi=ROOT + "  /a/b: {get: {operationId: one}}\n  /c: {$ref: 'o.yaml#/paths/~1a~1b'}",
        o="paths: {/a/b: {put: {operationId: two}}}",
    )
    assert [draft.key for draft in read(found.root).drafts] == ["/a/b@get", "/c@put"]


def test_names_with_odd_characters():
    found = Files("openapi.yaml")
    files = {"openapi.yaml": {"openapi": "3.1.0", "a": {"$ref": "a%2525~%23.yaml#/x"}}}
    files["a%25~#.yaml"] = {"x": {"type": "string"}}
    for name, tree in files.items():
        found.add(scan(name, tree))
    assert found.wanted_names() == []
    document = OpenApiDocument(found.assemble())
    assert document.resolve(document.root["a"]) == {"type": "string"}


def test_a_missing_file_costs_only_dependent_operations():
    found = document(
        openapi=ROOT + "  /a: {$ref: gone.yaml}\n  /b: {get: {}}\n"
        "  /c: {get: {parameters: [{name: q, in: query, schema: {$ref: 'gone.yaml#/Q'}}]}}",
        unread={"gone.yaml": "it does not exist"},
    )
    result = read(found.root)
    reasons = {o.key: (o.status, o.reason) for o in result.outcomes}
    assert reasons["/a"] == ("skipped", "$ref 'gone.yaml' cannot be read: it does not exist")
    assert reasons["/b@get"] == ("imported", None)
    assert reasons["/c@get"][0] == "degraded"
    assert "'gone.yaml#/Q' cannot be read: it does not exist" in reasons["/c@get"][1]
    assert result.notes == ("the file 'gone.yaml' cannot be read: it does not exist",)


def test_anchors_are_found_here_and_elsewhere():
    found = document(
        openapi="{openapi: 3.1.0, a: {$ref: '#pet'}, b: {$ref: 'o.yaml#pet'}, "
        "c: {$ref: 'o.yaml#none'}, x: {$anchor: pet, type: string}}",
        o="{deep: [{$anchor: pet, type: integer}]}",
    )
    assert found.resolve(found.root["a"])["type"] == "string"
    assert found.resolve(found.root["b"])["type"] == "integer"
    with pytest.raises(MissingReference, match="points at nothing"):
        found.resolve(found.root["c"])


def test_ids_name_schemas_in_any_file():
    found = document(
        openapi="{openapi: 3.1.0, a: {$ref: 'https://a.com/owner'}, b: {$ref: models.yaml}}",
        models="{$id: 'https://a.com/pet', type: object, properties: {owner: {$ref: owner}}, "
        "$defs: {o: {$id: owner, properties: {name: {$ref: '#/$defs/name'}}, "
        "$defs: {name: {type: string}}}}}",
    )
    assert together(openapi="{a: {$ref: b.yaml}}").wanted_names() == ["b.yaml"]
    owner = found.resolve(found.root["a"])
    assert found.resolve(owner["properties"]["name"]) == {"type": "string"}
    assert found.resolve(found.resolve(found.root["b"])["properties"]["owner"]) is owner


def test_self_of_a_description_sets_its_base():
    files = together(
        openapi="{openapi: 3.2.0, $self: 'https://a.com/api/v1', a: {$ref: 'https://a.com/api/m'}, "
        "b: {$ref: 'https://a.com/api/v1#/x'}, x: {type: string}}"
    )
    assert files.wanted_names() == ["m"]
    found = OpenApiDocument(files.assemble())
    assert found.resolve(found.root["b"]) == {"type": "string"}


def test_references_inside_examples_are_not_fetched():
    files = together(
        openapi="{openapi: 3.1.0, a: {example: {$ref: no.yaml}, examples: {x: {$ref: no.json}}, "
        "default: {$ref: no}, enum: [{$ref: no}]}, paths: {/a: {get: {responses: "
        "{default: {$ref: yes.yaml}}}}}, b: {properties: {example: {$ref: also.yaml}, "
        "$ref: {type: string}}}}"
    )
    assert files.wanted_names() == ["also.yaml", "yes.yaml"]
    assert files.assemble()["a"]["default"] == {"$ref": "no"}


def test_shared_yaml_nodes_are_rewritten_once():
    found = document(openapi="{openapi: 3.1.0, a: &a {$ref: o.yaml}, b: *a}", o="{type: string}")
    assert found.resolve(found.root["b"]) == {"type": "string"}


def test_references_on_the_way_of_a_pointer_are_followed():
    found = document(
        openapi="{openapi: 3.1.0, a: {$ref: '#/b'}, b: {$ref: '#/c'}, c: {d: {type: string}}, "
        "loop: {$ref: '#/loop/loop'}}"
    )
    assert found.find("#/a/d") == {"type": "string"}
    with pytest.raises(MissingReference):
        found.find("#/loop/x")


def test_a_very_deep_file_is_read_in_linear_time():
    tree: dict[str, Any] = {"$ref": "x.yaml"}
    for _ in range(5_000):
        tree = {"k" * 1_000: tree}
    assert len(scan("a", tree).references) == 1


@pytest.mark.parametrize(
    ("text", "alone"),
    [
        ('{"$ref": "#/a"}', True),
        ("$ref: '#/a'", True),
        ("'$ref': #/a", True),
        ("a: 1", True),
        ('{"$ref": "a.yaml"}', False),
        ('{"$ref": "#anchor"}', False),
        ('{"\\u0024ref": "a.yaml"}', False),
        ("$ref: >-\n  #/a", False),
        ("$id: a", False),
    ],
)
def test_a_file_that_refers_to_no_other_is_told_without_parsing(text, alone):
    assert stands_alone(text.encode()) is alone
    assert stands_alone(text.encode("utf-16")) is False


def test_rewritten_references_are_shown_in_original_form():
    assert original_reference("#/x-files/models~1pet.yaml/Cat") == "models/pet.yaml#/Cat"
    assert original_reference("#/x-files/models~1pet.yaml") == "models/pet.yaml"
    assert original_reference("#/components/schemas/Cat") == "#/components/schemas/Cat"
