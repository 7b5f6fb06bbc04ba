"""What the pet shop takes and gives, as JSON; the same as in `openapi.yaml`."""

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

Species = Literal["dog", "cat", "rabbit", "parrot", "goldfish"]
Status = Literal["available", "sold"]
Name = Annotated[str, Meta(min_length=1, max_length=60)]
Cents = Annotated[int, Meta(ge=0, le=10_000_000)]
Tags = Annotated[tuple[Annotated[str, Meta(min_length=1, max_length=20)], ...], Meta(max_length=10)]
Id = Annotated[int, Meta(ge=0, le=2**53 - 1)]  # what every JSON parser can hold
Email = Annotated[str, Meta(pattern=r"^[^@\s]+@[^@\s]+$", max_length=100)]


class Model(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    pass


class NewPet(Model, frozen=True):
    name: Name
    species: Species
    price_cents: Cents
    tags: Tags = ()


class PetChanges(Model, frozen=True):
    """Merge patch (RFC 7396): what is not there stays as it is."""

    name: Name | UnsetType = UNSET
    species: Species | UnsetType = UNSET
    price_cents: Cents | UnsetType = UNSET
    tags: Tags | UnsetType = UNSET


class Pet(Model, frozen=True):
    id: int
    name: str
    species: Species
    price_cents: int
    tags: tuple[str, ...]
    status: Status


class PetPage(Model, frozen=True):
    pets: tuple[Pet, ...]
    next: int | None  # `after` of the next page


class PetQuery(Model, frozen=True):
    species: Species | None = None
    status: Status | None = None
    tag: str | None = None
    max_price_cents: Cents | None = None
    after: Id = 0
    limit: Annotated[int, Meta(ge=1, le=100)] = 20


class NewOwner(Model, frozen=True):
    name: Name
    email: Email


class Owner(Model, frozen=True):
    id: int
    name: str
    email: str


class NewOrder(Model, frozen=True):
    pet_id: Id
    owner_id: Id


class Order(Model, frozen=True):
    id: int
    pet_id: int
    owner_id: int
    price_cents: int
    status: Literal["placed", "cancelled"]


class OrderQuery(Model, frozen=True):
    owner_id: Id | None = None
    after: Id = 0
    limit: Annotated[int, Meta(ge=1, le=100)] = 20


class OrderPage(Model, frozen=True):
    orders: tuple[Order, ...]
    next: int | None


class PhotoQuery(Model, frozen=True):
    size: Annotated[int, Meta(ge=16, le=512)] = 128
