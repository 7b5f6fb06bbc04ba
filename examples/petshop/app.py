"""The pet shop over HTTP: what `openapi.yaml` describes, in the same order.

Errors are problem details (RFC 9457): 404 not there, 409 not now, 422 not valid.
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from examples.petshop.models import (
    NewOrder,
    NewOwner,
    NewPet,
    OrderPage,
    OrderQuery,
    PetChanges,
    PetPage,
    PetQuery,
    PhotoQuery,
)
from examples.petshop.photo import photo
from examples.petshop.store import Conflict, NotThere, Store

T = TypeVar("T")


def build_app(store: Store) -> Starlette:
    shop = Shop(store)
    return Starlette(
        routes=[
            Route("/pets", shop.list_pets, methods=["GET"]),
            Route("/pets", shop.create_pet, methods=["POST"]),
            Route("/pets/{id:int}", shop.get_pet, methods=["GET"]),
            Route("/pets/{id:int}", shop.replace_pet, methods=["PUT"]),
            Route("/pets/{id:int}", shop.update_pet, methods=["PATCH"]),
            Route("/pets/{id:int}", shop.delete_pet, methods=["DELETE"]),
            Route("/pets/{id:int}/photo", shop.get_pet_photo, methods=["GET"]),
            Route("/owners", shop.list_owners, methods=["GET"]),
            Route("/owners", shop.create_owner, methods=["POST"]),
            Route("/owners/{id:int}", shop.get_owner, methods=["GET"]),
            Route("/orders", shop.list_orders, methods=["GET"]),
            Route("/orders", shop.place_order, methods=["POST"]),
            Route("/orders/{id:int}", shop.get_order, methods=["GET"]),
            Route("/orders/{id:int}/cancellation", shop.cancel_order, methods=["POST"]),
        ],
        exception_handlers={
            NotThere: not_there,
            Conflict: conflict,
            msgspec.ValidationError: invalid,
            msgspec.DecodeError: malformed,
            HTTPException: refused,
        },
    )


class Shop:
    """One method per operation."""

    def __init__(self, store: Store) -> None:
        self.store = store

    async def list_pets(self, request: Request) -> Response:
        query = read_query(request, PetQuery)
        pets, following = page(self.store.pets(query), query.limit)
        return answer(PetPage(pets, following))

    async def create_pet(self, request: Request) -> Response:
        pet = self.store.add_pet(await read_body(request, NewPet))
        return answer(pet, 201, {"Location": f"/pets/{pet.id}"})

    async def get_pet(self, request: Request) -> Response:
        return answer(self.store.pet(request.path_params["id"]))

    async def replace_pet(self, request: Request) -> Response:
        pet = await read_body(request, NewPet)
        return answer(self.store.change_pet(request.path_params["id"], pet))

    async def update_pet(self, request: Request) -> Response:
        changes = await read_body(request, PetChanges)
        return answer(self.store.change_pet(request.path_params["id"], changes))

    async def delete_pet(self, request: Request) -> Response:
        self.store.remove_pet(request.path_params["id"])
        return Response(status_code=204)

    async def get_pet_photo(self, request: Request) -> Response:
        query = read_query(request, PhotoQuery)
        pet = self.store.pet(request.path_params["id"])
        return Response(photo(pet.species, query.size), media_type="image/png")

    async def list_owners(self, _request: Request) -> Response:
        return answer(self.store.owners())

    async def create_owner(self, request: Request) -> Response:
        owner = self.store.add_owner(await read_body(request, NewOwner))
        return answer(owner, 201, {"Location": f"/owners/{owner.id}"})

    async def get_owner(self, request: Request) -> Response:
        return answer(self.store.owner(request.path_params["id"]))

    async def list_orders(self, request: Request) -> Response:
        query = read_query(request, OrderQuery)
        orders, following = page(self.store.orders(query), query.limit)
        return answer(OrderPage(orders, following))

    async def place_order(self, request: Request) -> Response:
        order = self.store.place_order(await read_body(request, NewOrder))
        return answer(order, 201, {"Location": f"/orders/{order.id}"})

    async def get_order(self, request: Request) -> Response:
        return answer(self.store.order(request.path_params["id"]))

    async def cancel_order(self, request: Request) -> Response:
        return answer(self.store.cancel_order(request.path_params["id"]))


def read_query(request: Request, kind: type[T]) -> T:
    # Not strict: in a query string, numbers are text.
    return msgspec.convert(dict(request.query_params), kind, strict=False)


async def read_body(request: Request, kind: type[T]) -> T:
    return msgspec.json.decode(await request.body(), type=kind)


def page(items: Sequence[T], limit: int) -> tuple[tuple[T, ...], int | None]:
    """The items of this page, and the id after which the next one starts, if there is one."""
    shown = tuple(items[:limit])
    last: Any = shown[-1] if len(items) > limit else None
    return shown, last and last.id


def answer(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(value), status, headers, "application/json")


def problem(status: int, title: str, detail: str) -> Response:
    body = {"type": "about:blank", "title": title, "status": status, "detail": detail}
    return Response(msgspec.json.encode(body), status, media_type="application/problem+json")


async def not_there(_request: Request, error: Exception) -> Response:
    return problem(404, "Not Found", str(error))


async def conflict(_request: Request, error: Exception) -> Response:
    return problem(409, "Conflict", str(error))


async def malformed(_request: Request, error: Exception) -> Response:
    return problem(400, "Bad Request", f"The body is not JSON: {error}")


async def invalid(_request: Request, error: Exception) -> Response:
    return problem(422, "Unprocessable Content", str(error))


async def refused(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    return problem(status, str(error), f"{request.method} {request.url.path}")
