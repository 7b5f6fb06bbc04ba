import pytest

from registry.importers.openapi import OpenApiOptions, parse, read
from registry.importers.openapi.operations import OPERATIONS_LIMIT
from registry.importers.openapi.schema_budgets import OUTPUT_LEFT_OUT
from schemas.errors import ImportRejected
from schemas.json_schema.checker import Checker
from schemas.jsonrpc import encode
from tests.registry.importers.describe import describe, document, import_description, only, query

SHOP = b"""
openapi: 3.1.0
info: {title: Shop, version: 1.0}
servers:
  - url: https://{region}.example.com/{base}
    variables: {region: {default: eu, enum: [eu, us]}, base: {default: v1}}
  - url: /v2
paths:
  /pets:
    get: {operationId: listPets, tags: [pets], responses: {200: {description: OK}}}
    post: {operationId: pets/create, tags: [pets]}
  /pets/{id}:
    parameters: [{name: id, in: path, required: true, schema: {type: integer}}]
    get: {}
    delete: {operationId: deletePet, tags: [pets, admin]}
"""


def shop(**options):
    return read(parse(SHOP, "shop.yaml"), OpenApiOptions(**options))


def test_a_describedbecomes_drafts_and_one_outcome_for_each_operation():
    result = shop()
    assert (result.title, result.version) == ("Shop", "1.0")
    assert result.servers == ("https://eu.example.com/v1", "/v2")
    assert [(o.key, o.operation, o.name, o.status) for o in result.outcomes] == [
        ("/pets@get", "listPets", "listPets", "imported"),
        ("/pets@post", "pets/create", "pets_create", "imported"),
        ("/pets/{id}@get", "GET /pets/{id}", "get_pets_by_id", "imported"),
        ("/pets/{id}@delete", "deletePet", "deletePet", "imported"),
    ]
    assert [draft.key for draft in result.drafts] == [o.key for o in result.outcomes]
    assert result.drafts[0].tags == ("pets",)
    assert result.drafts[0].output_schema is None
    assert result.notes == ()


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"include": ("list*",)}, ["listPets"]),
        ({"include": ("pets/*",)}, ["pets_create"]),  # operationId
        ({"include": ("GET /pets*",)}, ["listPets", "get_pets_by_id"]),
        ({"include": ("* /pets/{id}",)}, ["get_pets_by_id", "deletePet"]),
        ({"include": ("tag:pets",), "exclude": ("tag:admin",)}, ["listPets", "pets_create"]),
        ({"include": ("*",), "exclude": ("deletePet", "POST *")}, ["listPets", "get_pets_by_id"]),
        ({"include": ("LISTPETS",)}, ["listPets"]),
    ],
)
def test_patterns_select_by_name_id_endpoint_or_tag(options, names):
    assert [draft.name for draft in shop(**options).drafts] == names


def test_left_out_operations_have_a_reason():
    result = shop(include=("tag:pets",), exclude=("delete*", "nothing"))
    reasons = {o.operation: (o.status, o.name, o.reason) for o in result.outcomes}
    assert reasons["deletePet"] == ("excluded", None, "excluded by 'delete*'")
    assert reasons["GET /pets/{id}"] == ("excluded", None, "not included")
    assert result.notes == ("the pattern 'nothing' matches no operation",)


def test_a_selection_renames_nothing():
    paths = {"/a": {"get": {"operationId": "x"}}, "/b": {"get": {"operationId": "X"}}}
    every = {draft.key: draft.name for draft in read(document(paths)).drafts}
    [draft] = read(document(paths), OpenApiOptions(include=("GET /a",))).drafts
    assert draft.name == every["/a@get"]


def test_the_order_of_the_describedchanges_no_name():
    paths = {f"/{n}": {"get": {"operationId": "same"}} for n in range(5)}
    names = {draft.key: draft.name for draft in read(document(paths)).drafts}
    turned = document(dict(reversed(paths.items())))
    assert {draft.key: draft.name for draft in read(turned).drafts} == names


@pytest.mark.parametrize(
    "document",
    [
        {"host": "h.net", "service": "s", "action": []},
        {"h.net/world/hello/0.1.0": {"schema": {}}},
    ],
)
def test_a_hybrid_service_is_told_from_a_description_without_its_version(document):
    with pytest.raises(ImportRejected, match="`toolgate import hybrid` reads it"):
        read(document)
    with pytest.raises(ImportRejected, match="`openapi` is missing"):
        read({"/a/b/c": {}, "paths": {}})


def test_duplicate_operation_ids_are_imported_and_reported():
    paths = {"/a": {"get": {"operationId": "x"}}, "/b": {"get": {"operationId": "x"}}}
    result = import_description(document(paths))
    assert len({draft.name for draft in result.drafts}) == 2
    assert {o.status for o in result.outcomes} == {"degraded"}
    assert result.outcomes[0].reason == "operationId x is used more than once"


@pytest.mark.parametrize(
    "version", ["3.0.0", "3.0.4", "3.1.0", "3.1.1", 3.1, "3.0", "3.1.0-rc1", "3.2.0"]
)
def test_versions_that_are_read(version):
    assert read(document({"/": {"get": {}}}, version)).notes == ()


def test_the_methods_of_3_2():
    others = {"COPY": {}, "Unlock": {}, "no method": {}, "PUT": None}
    item = {"get": {}, "query": {}, "put": {}, "additionalOperations": others}
    result = read(document({"/": item}, "3.2.0"))
    assert [(d.key, d.name, d.binding.method) for d in result.drafts] == [
        ("/@get", "get", "GET"),
        ("/@put", "put", "PUT"),
        ("/@query", "query", "QUERY"),
        ("/@copy", "copy", "COPY"),
        ("/@Unlock", "unlock", "Unlock"),
    ]
    [skipped] = [o for o in result.outcomes if o.status == "skipped"]
    assert skipped.reason == "the method 'no method' cannot be sent"


@pytest.mark.parametrize(
    ("root", "message"),
    [
        ({"swagger": "1.2"}, "This is Swagger '1.2'. Supported: Swagger 2.0, OpenAPI 3.0, 3.1 and"),
        ({"overlay": "1.0.0", "actions": []}, "This is an OpenAPI Overlay"),
        ({"openapi": "4.0.0"}, "This is OpenAPI '4.0.0'. Supported"),
        ({"openapi": "3.10.0"}, "This is OpenAPI '3.10.0'. Supported"),
        ({"openapi": None}, "`openapi` is missing"),
        ({"title": "a JSON Schema"}, "`openapi` is missing"),
        ({"openapi": "3.1.0"}, "has no `paths`"),
        ({"openapi": "3.1.0", "paths": []}, "has no `paths`"),
    ],
)
def test_other_documents_are_refused(root, message):
    with pytest.raises(ImportRejected, match=message.replace(".", r"\.")):
        read(root)


def test_a_describedwith_too_many_operations_is_refused():
    paths = {f"/{n}": {"get": {}} for n in range(OPERATIONS_LIMIT + 1)}
    with pytest.raises(ImportRejected, match="more than 10,000 operations"):
        read(document(paths))


@pytest.mark.parametrize(
    ("item", "reason"),
    [
        (None, "the path item is not an object"),
        ([], "the path item is not an object"),
        ({"get": None}, "the operation is not an object"),
        ({"get": ["x"]}, "the operation is not an object"),
        ({"$ref": "#/components/pathItems/Nope"}, "points at nothing"),
        ({"$ref": "paths.yaml#/x"}, "another document"),
        ({"$ref": "#/paths/~1bad"}, "never ends"),
        ({"get": {"$ref": "#/paths/~1bad/get"}}, "never ends"),
        ({"get": {"requestBody": {"$ref": "#/nope"}}}, "points at nothing"),
        ({"get": {"parameters": [{"$ref": "other.json#/p"}]}}, "another document"),
    ],
)
def test_one_bad_operation_never_sinks_the_import(item, reason):
    result = import_description(document({"/bad": item, "/good": {"get": {}}}))
    [bad, good] = sorted(result.outcomes, key=lambda o: o.key)
    assert (bad.status, bad.name) == ("skipped", None)
    assert reason in bad.reason
    assert good.status == "imported"


def test_extensions_webhooks_and_unknown_members_are_no_operations():
    paths = {"x-common": {"get": {}}, "/a": {"get": {}, "x-get": {}, "summary": "s", "servers": []}}
    result = read(document(paths, webhooks={"hook": {"post": {}}}))
    assert [o.key for o in result.outcomes] == ["/a@get"]


def test_a_path_item_behind_a_reference():
    shared = {"pathItems": {"Pet": {"get": {"operationId": "getPet"}, "parameters": [query("a")]}}}
    item = {"$ref": "#/components/pathItems/Pet", "put": {"operationId": "putPet"}}
    result = import_description(document({"/a~b": item}, "3.1.0", components=shared))
    assert {draft.name for draft in result.drafts} == {"getPet", "putPet"}
    again = import_description(
        document({"/a~b": item, "/c": {"$ref": "#/paths/~1a~0b"}}, components=shared)
    )
    assert len(again.drafts) == 4


def test_reasons_are_named_up_to_five():
    schemas = {name: {"type": "strng"} for name in "abcdefg"}
    one = only(describe({"parameters": [query(name, s) for name, s in schemas.items()]}))
    assert one.reason.startswith("parameter a: `type` 'strng' is unknown; parameter b")
    assert one.reason.endswith("parameter e: `type` 'strng' is unknown; and 2 more")


def test_info_of_the_wrong_type_is_no_obstacle():
    result = read({"openapi": "3.1.0", "info": [], "servers": {}, "paths": {"/": {"get": {}}}})
    assert (result.title, result.version, result.servers) == (None, None, ())


def repeating(schemas, count):
    """A description whose operations all take the schema `S0`."""
    body = {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/S0"}}}}
    return {
        "openapi": "3.0.3",
        "paths": {f"/{n}": {"post": {"requestBody": body}} for n in range(count)},
        "components": {"schemas": schemas},
    }


CHAIN = {
    f"S{n}": {"properties": {"next": {"$ref": f"#/components/schemas/S{n + 1}"}}}
    for n in range(1000)
} | {"S1000": {}}
WIDE = {"S0": {"type": "object", "properties": {f"w{n}": {"type": "string"} for n in range(5000)}}}


@pytest.mark.parametrize("schemas", [CHAIN, WIDE], ids=["many schemas", "many properties"])
def test_repeated_schemas_are_bounded_by_a_named_limit(schemas):
    """A description of less than a megabyte asks for hundreds of megabytes of input schemas."""
    most = 2_000_000
    result = read(repeating(schemas, 3000), OpenApiOptions(schemas_limit_bytes=most))
    kept = sum(len(encode(draft.input_schema)) for draft in result.drafts)
    assert most / 2 < kept <= most * 1.3  # the names of definitions do not count
    [reason] = {one.reason for one in result.outcomes if one.status == "skipped"}
    assert reason == (
        "the input schemas of this description are larger than 2,000,000 bytes together "
        "(setting imports.schemas_limit_bytes)"
    )
    assert len(result.outcomes) == 3000


def test_a_reference_in_the_place_of_a_map_of_schemas_is_followed():
    """As DigitalOcean writes it."""
    shared = {"name": {"type": "string"}, "size": {"$ref": "#/components/schemas/Size"}}
    schema = {"type": "object", "properties": {"$ref": "#/x-shared/mine", "own": {"type": "null"}}}
    made = repeating({"S0": schema, "Size": {"type": "integer"}}, 1)
    made["x-shared"] = {"mine": {"$ref": "#/x-shared/all"}, "all": shared}
    result = read(made)
    assert [one.status for one in result.outcomes] == ["imported"]
    checker = Checker(encode(result.drafts[0].input_schema))
    assert checker.accepts({"name": "x", "size": 3})
    for wrong in ({"name": 3}, {"size": "x"}, {"other": 1}):
        assert not checker.accepts(wrong)


def test_maps_that_refer_to_themselves_stay_small():
    here = "#/components/schemas/S0/properties"
    again = {"properties": {"$ref": here}}
    made = repeating({"S0": {"properties": {"a": again, "b": again}}}, 1)
    result = read(made)
    assert [one.status for one in result.outcomes] == ["imported"]
    assert len(encode(result.drafts[0].input_schema)) < 2000


def test_a_missing_map_of_properties_costs_only_its_members():
    missing = {"properties": {"$ref": "#/nowhere", "own": {"type": "string"}}}
    result = read(repeating({"S0": missing}, 1))
    assert result.outcomes[0].status == "degraded"
    [reason] = [one.reason for one in result.outcomes]
    assert "'#/nowhere' points at nothing; what it would add is missing" in reason
    assert result.drafts[0].input_schema["properties"].keys() == {"own"}


@pytest.mark.parametrize(
    ("root", "name"),
    [
        ({"asyncapi": "3.0.0", "channels": {}}, "an AsyncAPI document"),
        ({"swaggerVersion": "1.2", "apis": []}, "Swagger 1.2"),
        ({"info": {"name": "n"}, "item": []}, "a Postman collection"),
        ({"log": {"version": "1.2", "entries": []}}, "a HAR archive"),
        ({"title": "T", "/users": {"get": {}}}, "a RAML document"),
    ],
)
def test_other_formats_are_named(root, name):
    """A refused description of another format is called by its name (mending 29)."""
    with pytest.raises(ImportRejected, match=f"This is {name}, which is not read"):
        read(root)


def test_operations_of_one_operation_id_are_named_after_their_methods():
    """Names with a method can be told apart by a reader, hashes cannot (mending 29)."""
    paths = {
        "/rooms": {"get": {"operationId": "rooms"}, "post": {"operationId": "rooms"}},
        "/doors": {"get": {"operationId": "open"}},
        "/doors/{id}": {"get": {"operationId": "open"}, "put": {"operationId": "open"}},
    }
    named = {draft.key: draft.name for draft in import_description(document(paths)).drafts}
    assert named == {
        "/rooms@get": "rooms_get",
        "/rooms@post": "rooms_post",
        "/doors@get": "get_doors",
        "/doors/{id}@get": "get_doors_by_id",
        "/doors/{id}@put": "open_put",
    }


def test_output_schemas_are_bounded_by_the_schema_limit() -> None:
    """A response counts for each operation that refers to it; tools beyond the limit have no
    output schema (mending 35)."""
    most = 200_000
    schema = {"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(200)}}
    answer = {"description": "", "content": {"application/json": {"schema": schema}}}
    responses = {"200": {"$ref": "#/components/responses/Big"}}
    described = {
        "openapi": "3.1.0",
        "info": {},
        "paths": {f"/x{n}": {"get": {"responses": responses}} for n in range(500)},
        "components": {"responses": {"Big": answer}},
    }
    result = read(described, OpenApiOptions(schemas_limit_bytes=most))
    assert len(result.drafts) == 500
    schemas = [draft.output_schema for draft in result.drafts if draft.output_schema is not None]
    assert most / 2 < sum(len(encode(schema)) for schema in schemas) <= most
    assert OUTPUT_LEFT_OUT in {outcome.reason for outcome in result.outcomes}
