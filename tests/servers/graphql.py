"""A GraphQL service over HTTP: graphql-core executes a real schema."""

import json
from dataclasses import dataclass, field
from typing import Any

from graphql import GraphQLError, build_schema, graphql_sync
from starlette.types import Receive, Scope, Send

from tests.servers.rest import read_seen, respond

SDL = '''
"""A pet shop."""
schema { query: Query mutation: Mutation subscription: Subscription }

scalar DateTime

"What a pet is."
enum Kind { "It barks." DOG "It does not." CAT @deprecated(reason: "allergies") }

interface Named { name: String! }

type Owner implements Named { id: ID! name: String! email: String pets(first: Int): [Pet!]! }

type Pet implements Named {
  id: ID!
  name: String!
  kind: Kind
  born: DateTime
  "Who feeds it."
  owner: Owner
  secret: String @deprecated
  weight(unit: String!): Float
}

type Toy { id: ID! squeaks: Boolean }

union Thing = Pet | Toy

type PageInfo { hasNextPage: Boolean! hasPreviousPage: Boolean! endCursor: String }
type PetEdge { cursor: String! node: Pet! }
type PetConnection { edges: [PetEdge!]! nodes: [Pet!]! pageInfo: PageInfo! totalCount: Int! }

input PetFilter { kind: Kind name: String all: [PetFilter!] }
input PetInput { name: String! kind: Kind = DOG born: DateTime }
input PetBy @oneOf { id: ID name: String }

type Query {
  "All pets, a page at a time."
  pets(first: Int, last: Int, after: String, filter: PetFilter): PetConnection!
  "One pet."
  pet(id: ID!): Pet
  petBy(by: PetBy!): Pet
  things: [Thing!]!
  named(name: String!): Named
  count(kind: Kind): Int!
  echo(text: String, numbers: [Int!]): String
  older: Int @deprecated(reason: "use count")
}

type Mutation {
  addPet(input: PetInput!): Pet!
  count(by: Int! = 1): Int!
}

type Subscription { petAdded: Pet! }
'''

PETS: tuple[dict[str, Any], ...] = tuple(
    {
        "id": str(number),
        "name": f"Pet {number}",
        "kind": "DOG" if number % 2 else "CAT",
        "born": f"2020-01-0{number}T00:00:00Z",
        "owner": {"id": "7", "name": "Ada", "email": None},
    }
    for number in range(1, 6)
)


class Root:
    """What the fields of Query and Mutation answer."""

    def pets(self, _info: Any, first: int = 2, after: str = "0", **_: Any) -> dict[str, Any]:
        begin = int(after)
        page = PETS[begin : begin + first]
        end = begin + len(page)
        info = {
            "hasNextPage": end < len(PETS),
            "hasPreviousPage": begin > 0,
            "endCursor": str(end),
        }
        edges = [{"cursor": pet["id"], "node": pet} for pet in page]
        return {"nodes": page, "edges": edges, "pageInfo": info, "totalCount": len(PETS)}

    def pet(self, _info: Any, id: str) -> dict[str, Any] | None:  # noqa: A002 - the field's
        if id == "bad":
            raise GraphQLError(
                "It ran away\n    at shop (/srv/shop.js:1:2)",
                extensions={"code": "GONE", "exception": {"stacktrace": ["at shop"]}},
            )
        if id == "half":
            return {**PETS[0], "owner": _fails}
        return next((pet for pet in PETS if pet["id"] == id), None)

    def petBy(self, _info: Any, by: dict[str, str]) -> dict[str, Any] | None:  # noqa: N802
        [(key, value)] = by.items()
        return next((pet for pet in PETS if pet[key] == value), None)

    def things(self, _info: Any) -> list[dict[str, Any]]:
        toy = {"__typename": "Toy", "id": "t", "squeaks": True}
        return [{"__typename": "Pet", **PETS[0]}, toy]

    def named(self, _info: Any, name: str) -> dict[str, Any]:
        return {"__typename": "Owner", "id": "7", "name": name, "email": None, "pets": []}

    def count(self, _info: Any, **arguments: Any) -> int:
        return len(PETS) + arguments.get("by", 0)

    def echo(self, _info: Any, **arguments: Any) -> str:
        return json.dumps(arguments)

    def addPet(self, _info: Any, input: dict[str, Any]) -> dict[str, Any]:  # noqa: A002, N802
        return {"id": "9", **input}


def _fails(_info: Any) -> None:
    raise GraphQLError("Nobody knows", extensions={"code": "FORBIDDEN"})


@dataclass
class PetShop:
    """Remembers what it was asked. `introspects` False: it refuses to say what it can do."""

    introspects: bool = True
    requests: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    schema: Any = field(default_factory=lambda: build_schema(SDL))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        seen = await read_seen(scope, receive)
        if seen.method != "POST" or scope["path"] != "/graphql":
            await respond(send, 404, b"Not here", [("content-type", "text/plain")])
            return
        request = json.loads(seen.body)
        self.requests.append(request)
        self.headers.append(dict(seen.headers))
        answered = json.dumps(self.answer(request)).encode()
        headers = [("content-type", "application/graphql-response+json")]
        await respond(send, 200 if b'"data"' in answered else 400, answered, headers)

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        if "__schema" in request["query"] and not self.introspects:
            return {"errors": [{"message": "Introspection is not allowed."}]}
        result = graphql_sync(
            self.schema,
            request["query"],
            Root(),
            variable_values=request["variables"],
            operation_name=request["operationName"],
        )
        return dict(result.formatted)
