"""Parameters: every style in every location (OpenAPI 3.2, section 4.12.2; Swagger 2.0,
`collectionFormat`)."""

import textwrap
from typing import Any

from tests.registry.importers.features.case import Call, Case

LIST = "{type: array, items: {type: string}}"
OBJECT = "{type: object, additionalProperties: {type: string}}"
RGB = {"c": {"R": "100", "G": "200"}}
BLUES = {"c": ["blue", "b/k"]}


def operation(parameters: str, path: str = "/x", method: str = "get") -> str:
    """`paths` with one operation, whose parameters stand one a line."""
    return f"""
paths:
  {path}:
    {method}:
      operationId: THIS
      responses: {{"200": {{description: Fine}}}}
      parameters:
{textwrap.indent(textwrap.dedent(parameters).strip(), " " * 8)}
"""


def in_path(
    name: str, style: str, explode: bool, schema: str, value: dict[str, Any], segment: str
) -> Case:
    said = f"style: {style}, explode: {str(explode).lower()}, schema: {schema}"
    text = f"- {{name: c, in: path, required: true, {said}}}"
    calls = [Call(value, f"GET /x/{segment}/y")]
    return Case(name, f"path: {style}", calls, three=operation(text, "/x/{c}/y"))


def in_query(
    name: str, row: str, style: str, schema: str, value: dict[str, Any], query: str
) -> Case:
    text = f"- {{name: c, in: query, {style}, schema: {schema}}}"
    return Case(name, row, [Call(value, f"GET /x?{query}")], three=operation(text))


def collection(name: str, style: str, value: dict[str, Any], query: str) -> Case:
    """Swagger 2.0 only."""
    text = f"- {{name: c, in: query, type: array, items: {{type: string}}, {style}}}"
    calls = [Call(value, f"GET /x?{query}")]
    return Case(name, "collectionFormat (2.0)", calls, two=operation(text))


PATHS = [
    Case(
        "path_scalar",
        "path: simple",
        [
            Call({"c": "a b/c?é"}, "GET /x/a%20b%2Fc%3F%C3%A9/y"),
            Call({"c": ".."}, None, error="path"),
        ],
        three=operation(
            "- {name: c, in: path, required: true, schema: {type: string}}", "/x/{c}/y"
        ),
        two=operation("- {name: c, in: path, required: true, type: string}", "/x/{c}/y"),
    ),
    Case(
        "path_boolean_and_number",
        "path: simple",
        [Call({"b": True, "n": 1.5}, "GET /true/1.5")],
        three=operation(
            """
            - {name: b, in: path, required: true, schema: {type: boolean}}
            - {name: n, in: path, required: true, schema: {type: number}}
            """,
            "/{b}/{n}",
        ),
        two=operation(
            """
            - {name: b, in: path, required: true, type: boolean}
            - {name: n, in: path, required: true, type: number}
            """,
            "/{b}/{n}",
        ),
    ),
    Case(
        "path_two_in_a_segment",
        "path: several in a segment",
        [Call({"a": "1", "file-name": "x", "ext": "c.s"}, "GET /v1/x.c.s")],
        three=operation(
            """
            - {name: a, in: path, required: true, schema: {type: string}}
            - {name: file-name, in: path, required: true, schema: {type: string}}
            - {name: ext, in: path, required: true, schema: {type: string}}
            """,
            "/v{a}/{file-name}.{ext}",
        ),
        two=operation(
            """
            - {name: a, in: path, required: true, type: string}
            - {name: file-name, in: path, required: true, type: string}
            - {name: ext, in: path, required: true, type: string}
            """,
            "/v{a}/{file-name}.{ext}",
        ),
    ),
    Case(
        "path_collection",
        "collectionFormat (2.0)",
        [Call(BLUES, "GET /x/blue%7Cb%2Fk/y")],
        two=operation(
            "- {name: c, in: path, required: true, type: array, items: {type: string}, "
            "collectionFormat: pipes}",
            "/x/{c}/y",
        ),
    ),
    in_path("path_simple_list", "simple", False, LIST, BLUES, "blue,b%2Fk"),
    in_path("path_simple_object", "simple", False, OBJECT, RGB, "R,100,G,200"),
    in_path("path_simple_object_exploded", "simple", True, OBJECT, RGB, "R=100,G=200"),
    in_path("path_label", "label", False, "{type: string}", {"c": "blue"}, ".blue"),
    in_path("path_label_list", "label", False, LIST, BLUES, ".blue,b%2Fk"),
    in_path("path_label_list_exploded", "label", True, LIST, BLUES, ".blue.b%2Fk"),
    in_path("path_label_object_exploded", "label", True, OBJECT, RGB, ".R=100.G=200"),
    in_path("path_matrix", "matrix", False, "{type: string}", {"c": "blue"}, ";c=blue"),
    in_path("path_matrix_list", "matrix", False, LIST, BLUES, ";c=blue,b%2Fk"),
    in_path("path_matrix_list_exploded", "matrix", True, LIST, BLUES, ";c=blue;c=b%2Fk"),
    in_path("path_matrix_object", "matrix", False, OBJECT, RGB, ";c=R,100,G,200"),
    in_path("path_matrix_object_exploded", "matrix", True, OBJECT, RGB, ";R=100;G=200"),
]

FORM = "query: form"
QUERIES = [
    Case(
        "query_scalars",
        FORM,
        [
            Call(
                {"q": "a&b=c+d é", "n": 7, "t": True}, "GET /x?q=a%26b%3Dc%2Bd%20%C3%A9&n=7&t=true"
            ),
            Call({}, "GET /x"),
            Call({"q": ""}, "GET /x?q="),
            Call({"n": "7"}, None, error="n"),
        ],
        three=operation(
            """
            - {name: q, in: query, schema: {type: string}}
            - {name: n, in: query, schema: {type: integer}}
            - {name: t, in: query, schema: {type: boolean}}
            """
        ),
        two=operation(
            """
            - {name: q, in: query, type: string}
            - {name: n, in: query, type: integer}
            - {name: t, in: query, type: boolean}
            """
        ),
    ),
    in_query("query_form_list", FORM, "style: form", LIST, BLUES, "c=blue&c=b%2Fk"),
    in_query("query_form_list_joined", FORM, "explode: false", LIST, BLUES, "c=blue,b%2Fk"),
    in_query("query_form_object", FORM, "style: form", OBJECT, RGB, "R=100&G=200"),
    in_query("query_form_object_joined", FORM, "explode: false", OBJECT, RGB, "c=R,100,G,200"),
    in_query(
        *("query_space", "query: spaceDelimited", "style: spaceDelimited, explode: false"),
        *(LIST, BLUES, "c=blue%20b%2Fk"),
    ),
    in_query(
        *("query_pipe", "query: pipeDelimited", "style: pipeDelimited, explode: false"),
        *(LIST, BLUES, "c=blue%7Cb%2Fk"),
    ),
    in_query(
        *("query_deep", "query: deepObject", "style: deepObject, explode: true"),
        *(OBJECT, RGB, "c%5BR%5D=100&c%5BG%5D=200"),
    ),
    in_query(
        *("query_deep_nested", "query: deepObject, nested", "style: deepObject, explode: true"),
        "{type: object, properties: {a: {type: object, properties: {b: {type: integer}}}, "
        "l: {type: array, items: {type: string}}}}",
        {"c": {"a": {"b": 1}, "l": ["x", "y"]}},
        "c%5Ba%5D%5Bb%5D=1&c%5Bl%5D%5B0%5D=x&c%5Bl%5D%5B1%5D=y",
    ),
    in_query(
        *("query_reserved", "allowReserved", "allowReserved: true", "{type: string}"),
        *({"c": "a/b?c=d&e f"}, "c=a/b?c=d%26e%20f"),
    ),
    Case(
        "query_empty_allowed",
        "allowEmptyValue",
        [Call({"c": ""}, "GET /x?c="), Call({}, "GET /x")],
        three=operation("- {name: c, in: query, allowEmptyValue: true, schema: {type: string}}"),
        two=operation("- {name: c, in: query, allowEmptyValue: true, type: string}"),
    ),
    Case(
        "query_nothing_to_say",
        "empty arrays and null",
        [
            Call({"c": []}, "GET /x"),
            Call({"c": ["", "a"]}, "GET /x?c=&c=a"),
            Call({"o": {}}, "GET /x"),
        ],
        three=operation(
            f"""
            - {{name: c, in: query, schema: {LIST}}}
            - {{name: o, in: query, schema: {OBJECT}}}
            """
        ),
    ),
    Case(
        "query_nothing_to_say_in_2",
        "empty arrays and null",
        [Call({"c": []}, "GET /x"), Call({"c": ["", "a"]}, "GET /x?c=&c=a")],
        two=operation(
            "- {name: c, in: query, type: array, items: {type: string}, collectionFormat: multi}"
        ),
    ),
    Case(
        "query_whole",
        "querystring (3.2)",
        [Call({"q": {"a": "x y", "b": ["1", "2"]}}, "GET /x?a=x%20y&b=1&b=2")],
        three=operation(
            "- {name: q, in: querystring, content: {application/x-www-form-urlencoded: "
            f"{{schema: {{type: object, properties: {{a: {{type: string}}, b: {LIST}}}}}}}}}}}"
        ),
        since="3.2",
    ),
    Case(
        "query_whole_json",
        "querystring (3.2)",
        [Call({"q": {"a": 1}}, "GET /x?%7B%22a%22%3A1%7D")],
        three=operation(
            "- {name: q, in: querystring, content: {application/json: {schema: {type: object}}}}"
        ),
        since="3.2",
    ),
    collection("query_csv", "collectionFormat: csv", BLUES, "c=blue,b%2Fk"),
    collection("query_csv_unsaid", "required: true", BLUES, "c=blue,b%2Fk"),
    collection("query_ssv", "collectionFormat: ssv", BLUES, "c=blue%20b%2Fk"),
    collection("query_tsv", "collectionFormat: tsv", BLUES, "c=blue%09b%2Fk"),
    collection("query_pipes", "collectionFormat: pipes", BLUES, "c=blue%7Cb%2Fk"),
    collection("query_multi", "collectionFormat: multi", BLUES, "c=blue&c=b%2Fk"),
]

HEADERS = [
    Case(
        "header_values",
        "header: simple",
        [
            Call(
                {"X-Text": "a, b=c", "X-List": ["a", "b"], "X-Pairs": {"R": "1", "G": "2"}},
                "GET /x",
                {"x-text": "a, b=c", "x-list": "a,b", "x-pairs": "R=1,G=2"},
            ),
            Call({"X-Text": "a\r\nX-Evil: 1"}, None, error="X-Text"),
            Call({}, "GET /x", {"x-text": None}),
        ],
        three=operation(
            f"""
            - {{name: X-Text, in: header, schema: {{type: string}}}}
            - {{name: X-List, in: header, schema: {LIST}}}
            - {{name: X-Pairs, in: header, explode: true, schema: {OBJECT}}}
            """
        ),
    ),
    Case(
        "header_values_of_2",
        "header: simple",
        [Call({"X-List": ["a", "b"], "X-On": True}, "GET /x", {"x-list": "a,b", "x-on": "true"})],
        two=operation(
            """
            - {name: X-List, in: header, type: array, items: {type: string}}
            - {name: X-On, in: header, type: boolean}
            """
        ),
    ),
    Case(
        "header_reserved",
        "header: simple",
        [Call({}, "GET /x", {"accept": "application/json, */*;q=0.8", "authorization": None})],
        three=operation(
            """
            - {name: Accept, in: header, schema: {type: string}}
            - {name: Content-Type, in: header, schema: {type: string}}
            - {name: Authorization, in: header, schema: {type: string}}
            - {name: Host, in: header, schema: {type: string}}
            """
        ),
        offers=frozenset(),
    ),
    Case(
        "cookies",
        "cookie: form",
        [
            Call({"a": "x;y", "b": [1, 2]}, "GET /x", {"cookie": "a=x%3By; b=1,2"}),
            Call({}, "GET /x", {"cookie": None}),
        ],
        three=operation(
            """
            - {name: a, in: cookie, schema: {type: string}}
            - {name: b, in: cookie, explode: false, schema: {type: array, items: {type: integer}}}
            """
        ),
    ),
    Case(
        "cookie_style",
        "cookie: cookie (3.2)",
        [
            Call({"a": "x=/y%"}, "GET /x", {"cookie": "a=x=/y%"}),
            Call({"a": "x;y"}, None, error="a"),
        ],
        three=operation("- {name: a, in: cookie, style: cookie, schema: {type: string}}"),
        since="3.2",
    ),
]

MEDIA = "content: {application/json: {schema: {type: object}}}"
OTHERS = [
    Case(
        "content_parameters",
        "content parameters",
        [
            Call(
                {"c": {"a": [1, None]}, "X-Filter": {"k": "v"}},
                "GET /x?c=%7B%22a%22%3A%5B1%2Cnull%5D%7D",
                {"x-filter": '{"k":"v"}'},
            )
        ],
        three=operation(
            f"""
            - {{name: c, in: query, {MEDIA}}}
            - {{name: X-Filter, in: header, {MEDIA}}}
            """
        ),
    ),
    Case(
        "path_level",
        "parameters of the path",
        [Call({"id": "7", "q": 1}, "GET /x/7?q=1")],
        three="""
        paths:
          /x/{id}:
            parameters:
              - {name: id, in: path, required: true, schema: {type: string}}
              - {name: q, in: query, schema: {type: string}}
            get:
              operationId: THIS
              parameters:
                - {name: q, in: query, schema: {type: integer}}
        """,
        two="""
        paths:
          /x/{id}:
            parameters:
              - {name: id, in: path, required: true, type: string}
              - {name: q, in: query, type: string}
            get:
              operationId: THIS
              parameters:
                - {name: q, in: query, type: integer}
        """,
        offers=frozenset({"id", "q"}),
    ),
    Case(
        "one_name_everywhere",
        "one name in several places",
        [
            Call(
                {"id": "p", "id_query": "q", "id_header": "h", "id_cookie": "c", "body_id": "b"},
                "POST /x/p?id=q",
                {"id": "h", "cookie": "id=c"},
                b'{"id":"b"}',
            )
        ],
        three=operation(
            """
            - {name: id, in: path, required: true, schema: {type: string}}
            - {name: id, in: query, schema: {type: string}}
            - {name: id, in: header, schema: {type: string}}
            - {name: id, in: cookie, schema: {type: string}}
            """,
            "/x/{id}",
            "post",
        )
        + """
      requestBody:
        content:
          application/json: {schema: {type: object, properties: {id: {type: string}}}}
""",
    ),
    Case(
        "one_name_everywhere_in_2",
        "one name in several places",
        [
            Call(
                {"id": "p", "id_query": "q", "body_id": "b"},
                "POST /x/p?id=q",
                {},
                b'{"id":"b"}',
            )
        ],
        two=operation(
            """
            - {name: id, in: path, required: true, type: string}
            - {name: id, in: query, type: string}
            - {name: b, in: body, schema: {type: object, properties: {id: {type: string}}}}
            """,
            "/x/{id}",
            "post",
        ),
    ),
    Case(
        "defaults",
        "defaults stay with the service",
        [Call({}, "GET /x")],
        three=operation("- {name: n, in: query, schema: {type: integer, default: 20}}"),
        two=operation("- {name: n, in: query, type: integer, default: 20}"),
        schema={"n": {"type": "integer", "default": 20}},
    ),
]

CASES = [*PATHS, *QUERIES, *HEADERS, *OTHERS]
