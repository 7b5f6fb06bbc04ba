"""Documents: references, components, path items, methods, and marks of ours."""

from tests.registry.importers.features.case import Answer, Call, Case

NODE = {"name": "a", "next": {"name": "b", "next": {"name": "c"}}}
NODE_JSON = b'{"name":"a","next":{"name":"b","next":{"name":"c"}}}'
WRONG = {"name": "a", "next": {"next": {}}}

REFERENCES = [
    Case(
        "circular",
        "circular references",
        [
            Call(NODE, "POST /x", {}, NODE_JSON),
            Call(WRONG, None, error="name"),
        ],
        three="""
        paths:
          /x:
            post:
              operationId: THIS
              requestBody:
                required: true
                content: {application/json: {schema: {$ref: '#/components/schemas/Node'}}}
              responses:
                "200":
                  description: Fine
                  content: {application/json: {schema: {$ref: '#/components/schemas/Node'}}}
        components:
          schemas:
            Node:
              type: object
              required: [name]
              properties: {name: {type: string}, next: {$ref: '#/components/schemas/Node'}}
        """,
        two="""
        paths:
          /x:
            post:
              operationId: THIS
              parameters:
                - {name: n, in: body, required: true, schema: {$ref: '#/definitions/Node'}}
              responses: {"200": {description: Fine, schema: {$ref: '#/definitions/Node'}}}
        definitions:
          Node:
            type: object
            required: [name]
            properties: {name: {type: string}, next: {$ref: '#/definitions/Node'}}
        """,
    ),
    Case(
        "pointers",
        "pointers with ~1 and %-escapes",
        [Call({"a_b": 1}, "PUT /x", {}, b'{"a b":1}')],
        three="""
        paths:
          /x/y:
            post:
              operationId: THIS_other
              requestBody:
                required: true
                content:
                  application/json:
                    schema: {type: object, properties: {"a b": {type: integer}}}
          /x:
            put:
              operationId: THIS
              requestBody: {$ref: '#/paths/~1x~1y/post/requestBody'}
        """,
        two="""
        paths:
          /x/y:
            post:
              operationId: THIS_other
              parameters:
                - name: b
                  in: body
                  required: true
                  schema: {type: object, properties: {"a b": {type: integer}}}
          /x:
            put:
              operationId: THIS
              parameters:
                - $ref: '#/paths/~1x~1y/post/parameters/0'
        """,
        offers=frozenset({"a_b"}),
    ),
    Case(
        "path_items",
        "references of path items",
        [Call({"id": "7"}, "GET /y/7")],
        three="""
        paths:
          /x/{id}:
            parameters: [{name: id, in: path, required: true, schema: {type: string}}]
            post: {operationId: THIS_other}
          /y/{id}: {$ref: '#/x-items/y'}
        x-items:
          y:
            parameters: [{name: id, in: path, required: true, schema: {type: string}}]
            get: {operationId: THIS}
        """,
        two="""
        paths:
          /y/{id}: {$ref: '#/x-items/y'}
        x-items:
          y:
            parameters: [{name: id, in: path, required: true, type: string}]
            get: {operationId: THIS}
        """,
    ),
    Case(
        "path_item_components",
        "references of path items",
        [Call({"id": "7"}, "GET /y/7")],
        three="""
        paths:
          /y/{id}: {$ref: '#/components/pathItems/y'}
        components:
          pathItems:
            y:
              parameters: [{name: id, in: path, required: true, schema: {type: string}}]
              get: {operationId: THIS}
        """,
        since="3.1",
    ),
    Case(
        "components",
        "components of every kind",
        [
            Call(
                {"q": "a", "name": "n"},
                "POST /x?q=a",
                {"content-type": "application/json", "x-key": "k"},
                b'{"name":"n"}',
                Answer(b'{"name":"n"}'),
                structured={"name": "n"},
            )
        ],
        three="""
        paths:
          /x:
            post:
              operationId: THIS
              security: [{key: []}]
              parameters: [{$ref: '#/components/parameters/Q'}]
              requestBody: {$ref: '#/components/requestBodies/Named'}
              responses: {"200": {$ref: '#/components/responses/Named'}}
              callbacks: {done: {$ref: '#/components/callbacks/Done'}}
        components:
          schemas:
            Named: {type: object, required: [name], properties: {name: {type: string}}}
          parameters:
            Q:
              name: q
              in: query
              schema: {type: string}
              examples: {one: {$ref: '#/components/examples/One'}}
          examples: {One: {value: first}}
          requestBodies:
            Named:
              required: true
              content: {application/json: {schema: {$ref: '#/components/schemas/Named'}}}
          responses:
            Named:
              description: Fine
              headers: {X-Rate: {$ref: '#/components/headers/Rate'}}
              content: {application/json: {schema: {$ref: '#/components/schemas/Named'}}}
              links: {self: {$ref: '#/components/links/Self'}}
          headers: {Rate: {schema: {type: integer}}}
          links: {Self: {operationId: THIS}}
          callbacks: {Done: {'{$request.body#/url}': {post: {responses: {}}}}}
          securitySchemes: {key: {type: apiKey, in: header, name: X-Key}}
        """,
        two="""
        paths:
          /x:
            post:
              operationId: THIS
              security: [{key: []}]
              parameters: [{$ref: '#/parameters/Q'}, {$ref: '#/parameters/Named'}]
              responses: {"200": {$ref: '#/responses/Named'}}
        definitions:
          Named: {type: object, required: [name], properties: {name: {type: string}}}
        parameters:
          Q: {name: q, in: query, type: string}
          Named: {name: b, in: body, required: true, schema: {$ref: '#/definitions/Named'}}
        responses: {Named: {description: Fine, schema: {$ref: '#/definitions/Named'}}}
        securityDefinitions: {key: {type: apiKey, in: header, name: X-Key}}
        """,
        settings={"headers": {"X-Key": "k"}},
        output={"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}},
    ),
    Case(
        "media_type_components",
        "components of every kind",
        [Call({"a": 1}, "POST /x", {}, b'{"a":1}')],
        three="""
        paths:
          /x:
            post:
              operationId: THIS
              requestBody:
                required: true
                content: {application/json: {$ref: '#/components/mediaTypes/A'}}
        components:
          mediaTypes:
            A: {schema: {type: object, properties: {a: {type: integer}}}}
        """,
        since="3.2",
    ),
]

METHODS = [
    Case(
        "method_query",
        "QUERY and additionalOperations (3.2)",
        [
            Call({"a": 1}, "QUERY /x", {"content-type": "application/json"}, b'{"a":1}'),
            Call({}, "LINK /x", tool="_link"),
        ],
        three="""
        paths:
          /x:
            query:
              operationId: THIS
              requestBody:
                content:
                  application/json: {schema: {type: object, properties: {a: {type: integer}}}}
            additionalOperations:
              LINK: {operationId: THIS_link}
        """,
        since="3.2",
    ),
    Case(
        "methods",
        "all methods",
        [
            Call({}, f"{method.upper()} /x", tool=f"_{method}")
            for method in ("get", "put", "post", "delete", "options", "patch")
        ],
        three="""
        paths:
          /x:
            get: {operationId: THIS_get}
            put: {operationId: THIS_put}
            post: {operationId: THIS_post}
            delete: {operationId: THIS_delete}
            options: {operationId: THIS_options}
            patch: {operationId: THIS_patch}
        """,
        two="""
        paths:
          /x:
            get: {operationId: THIS_get}
            put: {operationId: THIS_put}
            post: {operationId: THIS_post}
            delete: {operationId: THIS_delete}
            options: {operationId: THIS_options}
            patch: {operationId: THIS_patch}
        """,
    ),
]

MARKED = """
paths:
  /x:
    get:
      operationId: THIS_before
      x-toolgate:
        name: THIS
        description: What a model reads.
      parameters:
        - {name: a, in: query, %s, x-toolgate: {name: first, description: The first.}}
        - {name: b, in: query, %s, x-toolgate: {hide: true, value: fixed}}
        - {name: c, in: query, %s, x-toolgate: {hide: true}}
    delete:
      operationId: THIS_never
      x-toolgate: {enabled: false}
"""
THREE = ("schema: {type: string}", "schema: {type: string}", "schema: {type: string, default: d}")
TWO = ("type: string", "type: string", "type: string, default: d")
ENABLED = """
paths:
  /x:
    get: {operationId: THIS, x-toolgate: {enabled: true}}
    put: {operationId: THIS_unmarked}
"""
MARKS = [
    Case(
        "marks",
        "x-toolgate",
        [
            Call({"first": "1"}, "GET /x?a=1&b=fixed&c=d"),
            Call({"b": "2"}, None, error="b"),
            Call({}, None, tool="_never", error="_never"),
        ],
        three=MARKED % THREE,
        two=MARKED % TWO,
        offers=frozenset({"first"}),
        schema={"first": {"type": "string", "description": "The first."}},
    ),
    Case(
        "marked_for_a_toolset",
        "x-toolgate",
        [Call({}, "GET /x")],
        three="paths: {/x: {get: {operationId: THIS, x-toolgate: {toolsets: [marked]}}}}",
        two="paths: {/x: {get: {operationId: THIS, x-toolgate: {toolsets: [marked]}}}}",
    ),
    Case(
        "only_marked",
        "only what is marked",
        [Call({}, "GET /x"), Call({}, None, tool="_unmarked", error="_unmarked")],
        three=ENABLED,
        two=ENABLED,
        settings={"only_marked": True},
    ),
]

CASES = [*REFERENCES, *METHODS, *MARKS]
