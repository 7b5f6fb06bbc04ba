"""The pet shop does what its OpenAPI file says."""

import re
import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

import msgspec
import pytest
import yaml
from jsonschema import Draft202012Validator
from starlette.routing import Route

from config.yaml_document import Loader
from examples.petshop.app import build_app
from examples.petshop.models import NewOrder, NewPet, PetQuery
from examples.petshop.photo import COLOURS, photo
from examples.petshop.store import Conflict, Store
from tests.examples.conftest import ROOT, errors, line, program

FILE = ROOT / "examples/petshop/openapi.yaml"
DESCRIPTION: dict[str, Any] = yaml.load(FILE.read_bytes(), Loader=Loader)
OPERATIONS: dict[str, tuple[str, str, dict[str, Any]]] = {
    operation["operationId"]: (method.upper(), path, operation)
    for path, item in DESCRIPTION["paths"].items()
    for method, operation in item.items()
    if method != "parameters"
}
REX = {"name": "Rex II", "species": "dog", "priceCents": 100, "tags": ["small"]}


@dataclass(frozen=True)
class Call:
    operation: str
    status: int
    path: Mapping[str, int] = field(default_factory=dict)
    query: Mapping[str, Any] = field(default_factory=dict)
    body: Any = None


class Answer(NamedTuple):
    status: int
    media_type: str
    body: bytes

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)


CALLS = (
    Call("listPets", 200),
    Call(
        "listPets",
        200,
        query={
            "species": "cat",
            "status": "available",
            "tag": "indoor",
            "maxPriceCents": 23000,
            "after": 1,
            "limit": 1,
        },
    ),
    Call("listPets", 422, query={"species": "unicorn"}),
    Call("listPets", 422, query={"limit": 0}),
    Call("createPet", 201, body=REX),
    Call("createPet", 422, body={"name": "Rex II"}),
    Call("createPet", 422, body=REX | {"priceCents": "much"}),
    Call("createPet", 422, body=REX | {"colour": "red"}),
    Call("getPet", 200, {"petId": 9}),
    Call("getPet", 404, {"petId": 99}),
    Call("getPet", 404, {"petId": 2**64}),
    Call("replacePet", 200, {"petId": 9}, body=REX | {"name": "Max"}),
    Call("replacePet", 404, {"petId": 99}, body=REX),
    Call("replacePet", 422, {"petId": 9}, body={}),
    Call("updatePet", 200, {"petId": 9}, body={"priceCents": 50}),
    Call("updatePet", 404, {"petId": 99}, body={}),
    Call("updatePet", 422, {"petId": 9}, body={"status": "sold"}),
    Call("deletePet", 204, {"petId": 9}),
    Call("deletePet", 404, {"petId": 9}),
    Call("getPetPhoto", 200, {"petId": 1}, {"size": 16}),
    Call("getPetPhoto", 404, {"petId": 99}),
    Call("getPetPhoto", 422, {"petId": 1}, {"size": 100000}),
    Call("listOwners", 200),
    Call("createOwner", 201, body={"name": "Kim", "email": "kim@example.com"}),
    Call("createOwner", 409, body={"name": "Kim", "email": "kim@example.com"}),
    Call("createOwner", 422, body={"name": "Kim", "email": "nowhere"}),
    Call("getOwner", 200, {"ownerId": 3}),
    Call("getOwner", 404, {"ownerId": 99}),
    Call("placeOrder", 201, body={"petId": 1, "ownerId": 3}),
    Call("placeOrder", 409, body={"petId": 1, "ownerId": 3}),
    Call("placeOrder", 404, body={"petId": 99, "ownerId": 3}),
    Call("placeOrder", 422, body={"petId": 2**63, "ownerId": 3}),
    Call("deletePet", 409, {"petId": 1}),
    Call("listOrders", 200, query={"ownerId": 3, "after": 0, "limit": 10}),
    Call("listOrders", 422, query={"ownerId": "Kim"}),
    Call("getOrder", 200, {"orderId": 1}),
    Call("getOrder", 404, {"orderId": 99}),
    Call("cancelOrder", 200, {"orderId": 1}),
    Call("cancelOrder", 409, {"orderId": 1}),
    Call("cancelOrder", 404, {"orderId": 99}),
)


def send(url: str, call: Call) -> Answer:
    method, path, _ = OPERATIONS[call.operation]
    query = f"?{urlencode(call.query)}" if call.query else ""
    body = None if call.body is None else msgspec.json.encode(call.body)
    target = url + path.format(**call.path) + query
    request = Request(target, body, {"Content-Type": "application/json"}, method=method)
    try:
        with urlopen(request, timeout=10) as response:
            return Answer(response.status, response.headers.get_content_type(), response.read())
    except HTTPError as error:
        with error:
            return Answer(error.code, error.headers.get_content_type(), error.read())


def resolve(node: dict[str, Any]) -> dict[str, Any]:
    if "$ref" not in node:
        return node
    _, _, group, name = node["$ref"].split("/")
    target: dict[str, Any] = DESCRIPTION["components"][group][name]
    return target


def test_every_call_answers_as_described(petshop: str) -> None:
    for call in CALLS:
        answer = send(petshop, call)
        assert answer.status == call.status, (call, answer)
        _, _, operation = OPERATIONS[call.operation]
        content = resolve(operation["responses"][str(call.status)]).get("content", {})
        if not content:
            assert answer.body == b""
            continue
        assert answer.media_type in content, (call, answer)
        if schema := content[answer.media_type].get("schema"):
            whole = {**schema, "components": DESCRIPTION["components"]}
            Draft202012Validator(whole).validate(answer.json)


def test_the_calls_cover_every_operation_and_every_answer() -> None:
    described = {
        (name, int(status))
        for name, (_, _, operation) in OPERATIONS.items()
        for status in operation["responses"]
    }
    assert {(call.operation, call.status) for call in CALLS} == described


@pytest.fixture
def petshop_store() -> Iterator[Store]:
    store = Store(":memory:")
    yield store
    store.close()


def test_every_route_is_described(petshop_store: Store) -> None:
    routes = {
        (method, re.sub(r"\{.*?\}", "{}", route.path))
        for route in build_app(petshop_store).routes
        if isinstance(route, Route)
        for method in (route.methods or set()) - {"HEAD"}
    }
    assert routes == {
        (method, re.sub(r"\{.*?\}", "{}", path)) for method, path, _ in OPERATIONS.values()
    }


def test_every_schema_of_the_description_is_valid() -> None:
    for schema in DESCRIPTION["components"]["schemas"].values():
        Draft202012Validator.check_schema(schema)


def test_unknown_paths_answer_problem_details(petshop: str) -> None:
    with pytest.raises(HTTPError) as caught:
        urlopen(f"{petshop}/cars", timeout=10)
    with caught.value as error:
        assert (error.code, error.headers.get_content_type()) == (404, "application/problem+json")


def test_pages_hold_every_pet_once(petshop: str) -> None:
    seen: list[int] = []
    after: int | None = 0
    while after is not None:
        page = send(petshop, Call("listPets", 200, query={"after": after, "limit": 3})).json
        seen += [pet["id"] for pet in page["pets"]]
        after = page["next"]
    assert seen == [*range(1, 9)]


def test_the_state_outlives_the_process(tmp_path: Path) -> None:
    file = str(tmp_path / "shop.sqlite")
    arguments = ("-m", "examples.petshop", "--port", "0", "--database", file)
    with program(*arguments) as process:
        created = send(line(process), Call("createPet", 201, body=REX)).json
    with program(*arguments) as process:
        found = send(line(process), Call("getPet", 200, {"petId": created["id"]})).json
    assert found == created


def test_a_port_in_use_is_told(petshop: str) -> None:
    with program("-m", "examples.petshop", "--port", petshop.rpartition(":")[2]) as process:
        assert process.wait(timeout=10) == 1
        assert errors(process).endswith("Address already in use. Try --port 0.\n")


def test_an_order_sells_a_pet_and_its_cancellation_restores_the_pet(petshop_store: Store) -> None:
    store = petshop_store
    order = store.place_order(NewOrder(pet_id=3, owner_id=1))
    assert store.pet(3).status == "sold"
    assert [pet.id for pet in store.pets(PetQuery(status="sold"))] == [3]
    store.cancel_order(order.id)
    assert store.pet(3).status == "available"
    with pytest.raises(Conflict, match="stays in the books"):
        store.remove_pet(3)
    assert store.add_pet(NewPet("Kit", "cat", 5)).id == 9


@pytest.mark.parametrize("species", COLOURS)
@pytest.mark.parametrize("size", [16, 100])
def test_a_photo_is_a_png_with_that_many_pixels(species: str, size: int) -> None:
    data = photo(species, size)
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    chunks = {}
    rest = data[8:]
    while rest:
        length, name = struct.unpack(">I4s", rest[:8])
        chunks[name], (check,) = rest[8 : 8 + length], struct.unpack(">I", rest[8 + length :][:4])
        assert check == zlib.crc32(name + chunks[name])
        rest = rest[12 + length :]
    assert struct.unpack(">II", chunks[b"IHDR"][:8]) == (size, size)
    assert len(zlib.decompress(chunks[b"IDAT"])) == size * (size + 1)
