"""Where a description lies, and where it says that its service is."""

from dataclasses import replace

from tests.registry.importers.features.case import Answer, Call, Case

# In folders, JSON and YAML mixed, with and without fragments, and in a circle over two files.
MAIN = """
paths:
  /x/{id}: {$ref: 'paths/x.yaml'}
"""
SHARED = {
    "models/pet.json": """{
        "type": "object", "required": ["name"],
        "properties": {"name": {"type": "string"}, "owner": {"$ref": "people.yaml#/Owner"}}
    }""",
    "models/people.yaml": """
        Owner:
          type: object
          properties:
            pets: {type: array, items: {$ref: pet.json}}
    """,
}
THREE_FILES = {
    "paths/x.yaml": """
        parameters: [{$ref: '../shared/parameters.json#/id~1of'}]
        put:
          operationId: THIS
          requestBody:
            required: true
            content: {application/json: {schema: {$ref: '../models/pet.json'}}}
          responses:
            "200":
              description: Fine
              content: {application/json: {schema: {$ref: '../models/people.yaml#/Owner'}}}
    """,
    "shared/parameters.json": """{
        "id/of": {"name": "id", "in": "path", "required": true, "schema": {"type": "integer"}}
    }""",
    **SHARED,
}
TWO_FILES = {
    "paths/x.yaml": """
        parameters: [{$ref: '../shared/parameters.json#/id~1of'}]
        put:
          operationId: THIS
          parameters:
            - {name: pet, in: body, required: true, schema: {$ref: '../models/pet.json'}}
          responses:
            "200": {description: Fine, schema: {$ref: '../models/people.yaml#/Owner'}}
    """,
    "shared/parameters.json": """{
        "id/of": {"name": "id", "in": "path", "required": true, "type": "integer"}
    }""",
    **SHARED,
}
PET = {"name": "a", "owner": {"pets": [{"name": "b"}]}}
PET_JSON = b'{"name":"a","owner":{"pets":[{"name":"b"}]}}'
WRONG = {"name": "a", "owner": {"pets": [{"owner": {}}]}}
SEVERAL = Case(
    "layout_files",
    "many files",
    [
        Call({"id": 7, **PET}, "PUT /x/7", {}, PET_JSON, Answer(b'{"pets":[]}')),
        Call({"id": 7, **WRONG}, None, error="name"),
    ],
    three=MAIN,
    two=MAIN,
    files=THREE_FILES,
    files_2=TWO_FILES,
    offers=frozenset({"id", "name", "owner"}),
)

SIMPLE = """
paths:
  /x: {get: {operationId: THIS, parameters: [%s], responses: {"200": {description: Fine}}}}
"""
ONE_FILE = Case(
    "layout_json",
    "JSON and YAML",
    [Call({"q": "a"}, "GET /x?q=a")],
    three=SIMPLE % "{name: q, in: query, schema: {type: string}}",
    two=SIMPLE % "{name: q, in: query, type: string}",
    layout="json",
)

OVERLAY = """
operations:
  GET /x: {name: THIS, enabled: true, arguments: {q: {hide: true, value: always}}}
"""
BESIDE = """
paths:
  /x:
    get: {operationId: THIS_before, parameters: [%s]}
    put: {operationId: THIS_unmarked}
"""
MARKED_BESIDE = Case(
    "layout_overlay",
    "marks in a file beside the description",
    [
        Call({}, "GET /x?q=always"),
        Call({}, None, tool="_unmarked", error="_unmarked"),
    ],
    three=BESIDE % "{name: q, in: query, schema: {type: string}}",
    two=BESIDE % "{name: q, in: query, type: string}",
    overlay=OVERLAY,
    settings={"only_marked": True},
    offers=frozenset(),
)


def served_case(name: str, row: str, three: str, request: str, two: str = "") -> Case:
    """A description at a URL of its service, which says where that is."""
    calls = [Call({}, request)]
    said = {"base_url": None}
    return Case(name, row, calls, three=three, two=two, settings=said, layout="url")


GET = "get: {operationId: THIS}"
SERVERS = [
    served_case(
        "server_of_the_document",
        "servers of document, path and operation",
        f"servers: [{{url: /THIS/v2}}]\npaths: {{/x: {{{GET}}}}}",
        "GET /v2/x",
        f"basePath: /THIS/v2\npaths: {{/x: {{{GET}}}}}",
    ),
    served_case(
        "server_beside_the_document",
        "servers of document, path and operation",
        f"servers: [{{url: ../../THIS/v2}}]\npaths: {{/x: {{{GET}}}}}",
        "GET /v2/x",
    ),
    served_case(
        "server_with_variables",
        "variables of servers",
        "servers: [{url: '{origin}/THIS/{stage}', variables: {origin: {default: ORIGIN}, "
        f"stage: {{default: v1, enum: [v1, v2]}}}}}}]\npaths: {{/x: {{{GET}}}}}",
        "GET /v1/x",
    ),
    served_case(
        "server_of_the_path",
        "servers of document, path and operation",
        f"servers: [{{url: /THIS}}]\npaths: {{/x: {{servers: [{{url: /THIS/p}}], {GET}}}}}",
        "GET /p/x",
    ),
    served_case(
        "server_of_the_operation",
        "servers of document, path and operation",
        "servers: [{url: /THIS}]\npaths: {/x: {servers: [{url: /THIS/p}], "
        "get: {operationId: THIS, servers: [{url: 'ORIGIN/THIS/{o}', "
        "variables: {o: {default: op}}}]}}}",
        "GET /op/x",
    ),
]

CASES = [
    ONE_FILE,
    SEVERAL,
    replace(SEVERAL, name="layout_directory", row="a directory", layout="directory"),
    replace(SEVERAL, name="layout_zip", row="a zip archive", layout="zip"),
    replace(SEVERAL, name="layout_url", row="a URL with relative references", layout="url"),
    MARKED_BESIDE,
    *SERVERS,
]
