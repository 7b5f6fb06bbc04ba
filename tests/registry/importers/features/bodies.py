"""Request bodies: what is sent as which media type (OpenAPI 3.2, sections 4.13 to 4.15)."""

import textwrap

from tests.registry.importers.features.case import Call, Case

FORM = {"content-type": "application/x-www-form-urlencoded"}
MULTIPART = {"content-type": "multipart/form-data; boundary=BOUNDARY"}


def posting(content: str, method: str = "post") -> str:
    """`paths` with one operation that has this `content`, and perhaps what follows it."""
    return f"""
paths:
  /x:
    {method}:
      operationId: THIS
      requestBody:
        required: true
        content:
{textwrap.indent(textwrap.dedent(content).strip(), " " * 10)}
"""


def posting_2(parameters: str, consumes: str, method: str = "post") -> str:
    return f"""
paths:
  /x:
    {method}:
      operationId: THIS
      consumes: [{consumes}]
      parameters:
{textwrap.indent(textwrap.dedent(parameters).strip(), " " * 8)}
"""


def parts(*members: tuple[str, str]) -> bytes:
    """A multipart body of (headers, text)."""
    written = [f"--BOUNDARY\r\n{head}\r\n\r\n{text}\r\n" for head, text in members]
    return ("".join(written) + "--BOUNDARY--\r\n").encode()


def part(name: str, more: str = "", filename: str | None = None) -> str:
    said = f'Content-Disposition: form-data; name="{name}"'
    named = said if filename is None else f'{said}; filename="{filename}"'
    return f"{named}\r\n{more}" if more else named


PET = "{type: object, required: [name], properties: {name: {type: string}, tags: {type: array, "
PET += "items: {type: string}}}}"

JSON_BODIES = [
    Case(
        "json_properties",
        "JSON",
        [
            Call(
                {"name": "Réx", "tags": []},
                "POST /x",
                {"content-type": "application/json"},
                '{"name":"Réx","tags":[]}'.encode(),
            ),
            Call({"tags": []}, None, error="name"),
        ],
        three=posting(f"application/json: {{schema: {PET}}}"),
        two=posting_2(
            "- {name: pet, in: body, required: true, schema: {$ref: '#/definitions/Pet'}}",
            "application/json",
        )
        + f"definitions: {{Pet: {PET}}}\n",
    ),
    Case(
        "json_null",
        "explicit null and empty arrays",
        [
            Call(
                {"a": None, "b": [], "c": {"d": None}},
                "POST /x",
                {},
                b'{"a":null,"b":[],"c":{"d":null}}',
            )
        ],
        three=posting(
            "application/json: {schema: {type: object, properties: {a: {type: [string, 'null']}, "
            "b: {type: array, items: {}}, c: {type: object}}}}"
        ),
        since="3.1",
    ),
    Case(
        "json_nullable",
        "explicit null and empty arrays",
        [Call({"a": None}, "POST /x", {}, b'{"a":null}')],
        three=posting(
            "application/json: {schema: {type: object, properties: "
            "{a: {type: string, nullable: true}, z: {type: string}}}}"
        ),
        two=posting_2(
            "- {name: b, in: body, required: true, schema: {type: object, properties: "
            "{a: {type: string, x-nullable: true}, z: {type: string}}}}",
            "application/json",
        ),
    ),
    Case(
        "json_list",
        "JSON",
        [Call({"body": [1, 2]}, "POST /x", {}, b"[1,2]")],
        three=posting("application/json: {schema: {type: array, items: {type: integer}}}"),
        two=posting_2(
            "- {name: b, in: body, required: true, schema: {type: array, items: {type: integer}}}",
            "application/json",
        ),
    ),
    Case(
        "json_vendor",
        "+json",
        [Call({"a": 1}, "POST /x", {"content-type": "application/vnd.api+json"}, b'{"a":1}')],
        three=posting(
            "application/vnd.api+json: {schema: {type: object, properties: {a: {type: integer}}}}"
        ),
        two=posting_2(
            "- {name: b, in: body, required: true, schema: "
            "{type: object, properties: {a: {type: integer}}}}",
            "application/vnd.api+json",
        ),
    ),
    Case(
        "json_patches",
        "JSON Patch and merge-patch",
        [Call({"a": 1}, "PATCH /x", {"content-type": "application/merge-patch+json"}, b'{"a":1}')],
        three=posting(
            """
            application/json-patch+json: {schema: {type: object, properties: {a: {}}}}
            application/merge-patch+json: {schema: {type: object, properties: {a: {}}}}
            """,
            "patch",
        ),
        two=posting_2(
            "- {name: b, in: body, required: true, "
            "schema: {type: object, properties: {a: {type: integer}}}}",
            "application/json-patch+json, application/merge-patch+json",
            "patch",
        ),
    ),
    Case(
        "json_steps",
        "JSON Patch and merge-patch",
        [
            Call(
                {"body": [{"op": "remove", "path": "/a"}]},
                "PATCH /x",
                {"content-type": "application/json-patch+json"},
                b'[{"op":"remove","path":"/a"}]',
            )
        ],
        three=posting(
            "application/json-patch+json: {schema: {type: array, items: {type: object}}}", "patch"
        ),
    ),
    Case(
        "read_only",
        "readOnly is no input",
        [
            Call({"name": "a", "in": {"b": 1}}, "POST /x", {}, b'{"name":"a","in":{"b":1}}'),
            Call({"name": "a", "id": 7}, None, error="id"),
        ],
        three=posting(
            "application/json: {schema: {type: object, required: [id, name], properties: "
            "{id: {type: integer, readOnly: true}, name: {type: string}, in: {type: object, "
            "required: [made, b], properties: {made: {type: string, readOnly: true}, "
            "b: {type: integer}}}}}}"
        ),
        two=posting_2(
            "- {name: b, in: body, required: true, schema: {type: object, required: [name], "
            "properties: {id: {type: integer, readOnly: true}, name: {type: string}, "
            "in: {type: object, properties: {made: {type: string, readOnly: true}, "
            "b: {type: integer}}}}}}",
            "application/json",
        ),
        offers=frozenset({"name", "in"}),
    ),
]

FILE = "{type: string, format: binary}"
FORMS = [
    Case(
        "form_fields",
        "form-urlencoded",
        [Call({"a": "x y&z", "n": 7, "l": ["b", "c"]}, "POST /x", FORM, b"a=x+y%26z&n=7&l=b&l=c")],
        three=posting(
            "application/x-www-form-urlencoded: {schema: {type: object, properties: "
            "{a: {type: string}, n: {type: integer}, l: {type: array, items: {type: string}}}}}"
        ),
        two=posting_2(
            """
            - {name: a, in: formData, type: string}
            - {name: n, in: formData, type: integer}
            - {name: l, in: formData, type: array, items: {type: string}, collectionFormat: multi}
            """,
            "application/x-www-form-urlencoded",
        ),
    ),
    Case(
        "form_encoding",
        "form-urlencoded with encoding",
        [
            Call(
                {"l": ["b", "c"], "d": {"k": {"m": "v"}}, "j": {"a": [1]}},
                "POST /x",
                FORM,
                b"l=b,c&d%5Bk%5D%5Bm%5D=v&j=%7B%22a%22%3A%5B1%5D%7D",
            )
        ],
        three=posting(
            """
            application/x-www-form-urlencoded:
              schema:
                type: object
                properties:
                  l: {type: array, items: {type: string}}
                  d: {type: object}
                  j: {type: object}
              encoding:
                l: {style: form, explode: false}
                d: {style: deepObject, explode: true}
                j: {contentType: application/json}
            """
        ),
    ),
    Case(
        "multipart_fields",
        "multipart",
        [
            Call(
                {"a": "x", "n": 7, "o": {"k": [1]}},
                "POST /x",
                MULTIPART,
                parts(
                    (part("a"), "x"),
                    (part("n"), "7"),
                    (part("o", "Content-Type: application/json"), '{"k":[1]}'),
                ),
            )
        ],
        three=posting(
            "multipart/form-data: {schema: {type: object, properties: "
            "{a: {type: string}, n: {type: integer}, o: {type: object}}}}"
        ),
    ),
    Case(
        "multipart_fields_of_2",
        "multipart",
        [
            Call(
                {"a": "x", "n": 7},
                "POST /x",
                MULTIPART,
                parts((part("a"), "x"), (part("n"), "7")),
            )
        ],
        two=posting_2(
            """
            - {name: a, in: formData, type: string}
            - {name: n, in: formData, type: integer}
            """,
            "multipart/form-data",
        ),
    ),
    Case(
        "multipart_file",
        "multipart with files",
        [
            Call(
                {"file": {"data": "aGVsbG8=", "filename": "a.txt", "mimeType": "text/plain"}},
                "POST /x",
                MULTIPART,
                parts((part("file", "Content-Type: text/plain", "a.txt"), "hello")),
            ),
            Call(
                {"file": "data:image/png;base64,aGVsbG8=", "note": "n"},
                "POST /x",
                MULTIPART,
                parts(
                    (part("file", "Content-Type: image/png", "file.png"), "hello"),
                    (part("note"), "n"),
                ),
            ),
            Call(
                {"file": "aGVsbG8="},
                "POST /x",
                MULTIPART,
                parts((part("file", "Content-Type: application/octet-stream", "file"), "hello")),
            ),
            Call({"file": "not base64!"}, None, error="file"),
        ],
        three=posting(
            f"multipart/form-data: {{schema: {{type: object, required: [file], properties: "
            f"{{file: {FILE}, note: {{type: string}}}}}}}}"
        ),
        two=posting_2(
            """
            - {name: file, in: formData, type: file, required: true}
            - {name: note, in: formData, type: string}
            """,
            "multipart/form-data",
        ),
    ),
    Case(
        "multipart_files",
        "multipart with files",
        [
            Call(
                {"files": ["YQ==", {"text": "b", "filename": "b.txt"}]},
                "POST /x",
                MULTIPART,
                parts(
                    (part("files", "Content-Type: application/octet-stream", "file"), "a"),
                    (part("files", "Content-Type: text/plain", "b.txt"), "b"),
                ),
            )
        ],
        three=posting(
            "multipart/form-data: {schema: {type: object, properties: "
            f"{{files: {{type: array, items: {FILE}}}}}}}}}"
        ),
    ),
    Case(
        "multipart_encoding",
        "multipart with encoding",
        [
            Call(
                {"doc": "YQ==", "meta": {"k": 1}},
                "POST /x",
                MULTIPART,
                parts(
                    (part("doc", "Content-Type: application/pdf", "file.pdf"), "a"),
                    (part("meta", "Content-Type: application/vnd.x+json"), '{"k":1}'),
                ),
            )
        ],
        three=posting(
            f"""
            multipart/form-data:
              schema:
                type: object
                properties: {{doc: {FILE}, meta: {{type: object}}}}
              encoding:
                doc: {{contentType: application/pdf}}
                meta: {{contentType: application/vnd.x+json}}
            """
        ),
    ),
]

UPLOADS = [
    Case(
        "multipart_by_url",
        "files from a URL",
        [
            Call(
                {"file": "ORIGIN/files/hello.txt"},
                "POST /x",
                MULTIPART,
                parts((part("file", "Content-Type: text/plain", "hello.txt"), "hello")),
            ),
            Call({"file": "ORIGIN/files/none"}, None, error="file"),
        ],
        three=posting(
            f"multipart/form-data: {{schema: {{type: object, properties: {{file: {FILE}}}}}}}"
        ),
        two=posting_2("- {name: file, in: formData, type: file}", "multipart/form-data"),
    ),
    Case(
        "octets_by_url",
        "files from a URL",
        [
            Call(
                {"body": "ORIGIN/files/hello.txt"},
                "POST /x",
                {"content-type": "application/octet-stream"},
                b"hello",
            )
        ],
        three=posting(f"application/octet-stream: {{schema: {FILE}}}"),
    ),
    Case(
        "multipart_media_type",
        "multipart with files",
        [
            Call(
                {"file": "aGVsbG8=", "b64": "aGVsbG8="},
                "POST /x",
                MULTIPART,
                parts(
                    (part("file", "Content-Type: image/png", "file.png"), "hello"),
                    (part("b64", "Content-Transfer-Encoding: base64"), "aGVsbG8="),
                ),
            )
        ],
        three=posting(
            "multipart/form-data: {schema: {type: object, properties: "
            "{file: {contentMediaType: image/png}, "
            "b64: {type: string, contentEncoding: base64}}}}"
        ),
        since="3.1",
    ),
]

BYTES = [
    Case(
        "json_lines",
        "JSON Lines (3.2)",
        [
            Call(
                {"body": [{"a": 1}, {"a": 2}]},
                "POST /x",
                {"content-type": "application/jsonl"},
                b'{"a":1}\n{"a":2}\n',
            )
        ],
        three=posting(
            "application/jsonl: {itemSchema: {type: object, properties: {a: {type: integer}}}}"
        ),
        since="3.2",
    ),
    Case(
        "octets",
        "octet-stream and other bytes",
        [
            Call(
                {"body": "aGVsbG8="},
                "POST /x",
                {"content-type": "application/octet-stream"},
                b"hello",
            )
        ],
        three=posting(f"application/octet-stream: {{schema: {FILE}}}"),
        two=posting_2(
            f"- {{name: b, in: body, required: true, schema: {FILE}}}", "application/octet-stream"
        ),
    ),
    Case(
        "octets_without_schema",
        "octet-stream and other bytes",
        [Call({"body": "aGVsbG8="}, "POST /x", {"content-type": "image/png"}, b"hello")],
        three=posting("image/png: {}"),
        since="3.1",
    ),
    Case(
        "text",
        "text",
        [Call({"body": "é\n{}"}, "POST /x", {"content-type": "text/plain"}, "é\n{}".encode())],
        three=posting("text/plain: {schema: {type: string}}"),
        two=posting_2(
            "- {name: b, in: body, required: true, schema: {type: string}}", "text/plain"
        ),
    ),
    Case(
        "xml",
        "XML",
        [
            Call(
                {"id": 7, "name": "a<b", "tags": ["x", "y"], "photos": ["p"]},
                "POST /x",
                {"content-type": "application/xml"},
                b'<?xml version="1.0" encoding="UTF-8"?>\n<pet id="7"><name>a&lt;b</name><tag>x'
                b"</tag><tag>y</tag><photos><url>p</url></photos></pet>",
            )
        ],
        three=posting("application/xml: {schema: {$ref: '#/components/schemas/Pet'}}")
        + """
components:
  schemas:
    Pet:
      type: object
      xml: {name: pet}
      properties:
        id: {type: integer, xml: {attribute: true}}
        name: {type: string}
        tags: {type: array, items: {type: string, xml: {name: tag}}}
        photos: {type: array, xml: {wrapped: true}, items: {type: string, xml: {name: url}}}
""",
        two=posting_2(
            "- {name: b, in: body, required: true, schema: {$ref: '#/definitions/Pet'}}",
            "application/xml",
        )
        + """
definitions:
  Pet:
    type: object
    xml: {name: pet}
    properties:
      id: {type: integer, xml: {attribute: true}}
      name: {type: string}
      tags: {type: array, items: {type: string, xml: {name: tag}}}
      photos: {type: array, xml: {wrapped: true}, items: {type: string, xml: {name: url}}}
""",
    ),
    Case(
        "xml_namespace",
        "XML",
        [
            Call(
                {"a": 1},
                "POST /x",
                {"content-type": "application/xml"},
                b'<?xml version="1.0" encoding="UTF-8"?>\n'
                b'<p:Thing xmlns:p="http://example.com/t"><p:a xmlns:p="http://example.com/t">1'
                b"</p:a></p:Thing>",
            )
        ],
        three=posting("application/xml: {schema: {$ref: '#/components/schemas/Thing'}}")
        + """
components:
  schemas:
    Thing:
      type: object
      xml: {prefix: p, namespace: 'http://example.com/t'}
      properties:
        a: {type: integer, xml: {prefix: p, namespace: 'http://example.com/t'}}
""",
    ),
]

SEVERAL = """
application/xml: {schema: {type: object, properties: {a: {type: string}}}}
text/plain: {schema: {type: string}}
application/x-www-form-urlencoded: {schema: {type: object, properties: {a: {type: string}}}}
application/json: {schema: {type: object, properties: {a: {type: string}}}}
"""
CHOICE = [
    Case(
        "best_media_type",
        "the best media type, or another",
        [Call({"a": "b"}, "POST /x", {"content-type": "application/json"}, b'{"a":"b"}')],
        three=posting(SEVERAL),
        two=posting_2(
            "- {name: b, in: body, required: true, "
            "schema: {type: object, properties: {a: {type: string}}}}",
            "application/xml, application/json",
        ),
    ),
    Case(
        "marked_media_type",
        "the best media type, or another",
        [Call({"a": "b"}, "POST /x", FORM, b"a=b")],
        three=posting(SEVERAL)
        + "      x-toolgate: {media_type: application/x-www-form-urlencoded}\n",
    ),
    Case(
        "asked_media_type",
        "the best media type, or another",
        [Call({"body": "b"}, "POST /x", {"content-type": "text/plain"}, b"b")],
        three=posting(SEVERAL),
        settings={"media_types": ("text/plain",)},
    ),
]

COMBINED = (
    "{oneOf: [{$ref: '#/components/schemas/Cat'}, {$ref: '#/components/schemas/Dog'}], "
    "discriminator: {propertyName: kind}}"
)
ANIMALS = """
components:
  schemas:
    Animal: {type: object, required: [kind], properties: {kind: {type: string}}}
    Cat:
      allOf:
        - {$ref: '#/components/schemas/Animal'}
        - {type: object, required: [lives], properties: {lives: {type: integer}}}
    Dog:
      allOf:
        - {$ref: '#/components/schemas/Animal'}
        - {type: object, required: [bark], properties: {bark: {type: boolean}}}
"""
SCHEMAS = [
    Case(
        "combinations",
        "oneOf, anyOf, allOf, discriminator",
        [
            Call({"body": {"kind": "Cat", "lives": 9}}, "POST /x", {}, b'{"kind":"Cat","lives":9}'),
            Call({"body": {"kind": "Dog"}}, None, error="body"),
        ],
        three=posting(f"application/json: {{schema: {COMBINED}}}") + ANIMALS,
    ),
    Case(
        "composition_of_2",
        "oneOf, anyOf, allOf, discriminator",
        [
            Call({"body": {"kind": "Cat", "lives": 9}}, "POST /x", {}, b'{"kind":"Cat","lives":9}'),
            Call({"body": {"kind": "Cat"}}, None, error="lives"),
        ],
        two=posting_2(
            "- {name: b, in: body, required: true, schema: {$ref: '#/definitions/Cat'}}",
            "application/json",
        )
        + """
definitions:
  Animal:
    {type: object, discriminator: kind, required: [kind], properties: {kind: {type: string}}}
  Cat:
    allOf:
      - {$ref: '#/definitions/Animal'}
      - {type: object, required: [lives], properties: {lives: {type: integer}}}
""",
    ),
    Case(
        "bounds_of_3_0",
        "dialects of schemas",
        [
            Call({"n": 0.5}, "POST /x", {}, b'{"n":0.5}'),
            Call({"n": 0}, None, error="n"),
        ],
        three=posting(
            "application/json: {schema: {type: object, properties: "
            "{n: {type: number, minimum: 0, exclusiveMinimum: true}}}}"
        ),
        two=posting_2(
            "- {name: b, in: body, required: true, schema: {type: object, properties: "
            "{n: {type: number, minimum: 0, exclusiveMinimum: true}}}}",
            "application/json",
        ),
        until="3.0",
    ),
    Case(
        "bounds_of_3_1",
        "dialects of schemas",
        [
            Call({"n": 0.5, "t": "a"}, "POST /x", {}, b'{"n":0.5,"t":"a"}'),
            Call({"t": 1}, "POST /x", {}, b'{"t":1}'),
            Call({"n": 0}, None, error="n"),
            Call({"t": None}, None, error="t"),
            Call({"c": "d"}, None, error="c"),
        ],
        three=posting(
            "application/json: {schema: {type: object, properties: "
            "{n: {type: number, exclusiveMinimum: 0}, t: {type: [string, integer]}, "
            "c: {const: e}}}}"
        ),
        since="3.1",
    ),
]

CASES = [*JSON_BODIES, *FORMS, *UPLOADS, *BYTES, *CHOICE, *SCHEMAS]
