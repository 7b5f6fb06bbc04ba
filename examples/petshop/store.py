"""The pet shop's state, in SQLite. Knows no HTTP."""

import json
import sqlite3
from collections.abc import Mapping
from typing import Any

from msgspec import UNSET
from msgspec.structs import asdict, replace

from examples.petshop.models import (
    NewOrder,
    NewOwner,
    NewPet,
    Order,
    OrderQuery,
    Owner,
    Pet,
    PetChanges,
    PetQuery,
)

TABLES = """
CREATE TABLE IF NOT EXISTS pet (
    id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL, species TEXT NOT NULL,
    price_cents INTEGER NOT NULL, tags TEXT NOT NULL, status TEXT NOT NULL DEFAULT 'available');
CREATE TABLE IF NOT EXISTS owner (
    id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL, email TEXT NOT NULL UNIQUE);
CREATE TABLE IF NOT EXISTS orders (
    id INTEGER PRIMARY KEY AUTOINCREMENT, pet_id INTEGER NOT NULL REFERENCES pet,
    owner_id INTEGER NOT NULL REFERENCES owner, price_cents INTEGER NOT NULL,
    status TEXT NOT NULL DEFAULT 'placed');
"""
PETS = (
    NewPet("Rex", "dog", 45_000, ("friendly", "large")),
    NewPet("Bella", "dog", 38_000, ("friendly", "puppy")),
    NewPet("Misty", "cat", 22_000, ("indoor",)),
    NewPet("Tom", "cat", 18_000, ("outdoor", "hunter")),
    NewPet("Luna", "cat", 25_000, ("indoor", "friendly")),
    NewPet("Hazel", "rabbit", 6_000, ("friendly",)),
    NewPet("Polly", "parrot", 31_000, ("talks",)),
    NewPet("Bubbles", "goldfish", 900),
)
OWNERS = (NewOwner("Ada Park", "ada@example.com"), NewOwner("Sam Ortiz", "sam@example.com"))


class NotThere(LookupError):
    """There is no pet, owner or order with that id."""

    def __init__(self, table: str, number: int) -> None:
        super().__init__(f"There is no {table.removesuffix('s')} with the id {number}.")


class Conflict(RuntimeError):
    """The request is fine, and the state of the shop does not allow it."""


class Store:
    """Every method is one transaction. `database` is a file or ":memory:"."""

    def __init__(self, database: str) -> None:
        # The service runs on one event loop, and a query here takes microseconds: no threads.
        self._db = sqlite3.connect(database, check_same_thread=False)
        self._db.row_factory = sqlite3.Row
        self._db.executescript("PRAGMA foreign_keys = ON;" + TABLES)
        if not self.pets(PetQuery(limit=1)):
            for pet in PETS:
                self.add_pet(pet)
            for owner in OWNERS:
                self.add_owner(owner)

    def close(self) -> None:
        self._db.close()

    def pets(self, query: PetQuery) -> list[Pet]:
        """In order of their ids; one more than `limit` when there is a next page."""
        rows = self._db.execute(
            "SELECT * FROM pet WHERE id > :after"
            " AND (:species IS NULL OR species = :species)"
            " AND (:status IS NULL OR status = :status)"
            " AND (:max_price_cents IS NULL OR price_cents <= :max_price_cents)"
            " AND (:tag IS NULL OR EXISTS (SELECT 1 FROM json_each(tags) WHERE value = :tag))"
            " ORDER BY id LIMIT :limit + 1",
            asdict(query),
        )
        return [_pet(row) for row in rows]

    def pet(self, number: int) -> Pet:
        return _pet(self._row("pet", number))

    def add_pet(self, pet: NewPet) -> Pet:
        with self._db:
            cursor = self._db.execute(
                "INSERT INTO pet (name, species, price_cents, tags) VALUES (?, ?, ?, ?)",
                (pet.name, pet.species, pet.price_cents, json.dumps(pet.tags)),
            )
        return self.pet(_new_id(cursor))

    def change_pet(self, number: int, changes: NewPet | PetChanges) -> Pet:
        wanted = {name: value for name, value in asdict(changes).items() if value is not UNSET}
        pet = replace(self.pet(number), **wanted)
        with self._db:
            self._db.execute(
                "UPDATE pet SET name = ?, species = ?, price_cents = ?, tags = ? WHERE id = ?",
                (pet.name, pet.species, pet.price_cents, json.dumps(pet.tags), number),
            )
        return pet

    def remove_pet(self, number: int) -> None:
        pet = self.pet(number)
        try:
            with self._db:
                self._db.execute("DELETE FROM pet WHERE id = ?", (number,))
        except sqlite3.IntegrityError as error:
            raise Conflict(f"{pet.name} stays in the books: there are orders.") from error

    def owners(self) -> list[Owner]:
        return [Owner(**row) for row in self._db.execute("SELECT * FROM owner ORDER BY id")]

    def owner(self, number: int) -> Owner:
        return Owner(**self._row("owner", number))

    def add_owner(self, owner: NewOwner) -> Owner:
        try:
            with self._db:
                cursor = self._db.execute(
                    "INSERT INTO owner (name, email) VALUES (?, ?)", (owner.name, owner.email)
                )
        except sqlite3.IntegrityError as error:
            raise Conflict(f"There is an owner with the address {owner.email} already.") from error
        return self.owner(_new_id(cursor))

    def orders(self, query: OrderQuery) -> list[Order]:
        """In order of their ids; one more than `limit` when there is a next page."""
        rows = self._db.execute(
            "SELECT * FROM orders WHERE id > :after"
            " AND (:owner_id IS NULL OR owner_id = :owner_id) ORDER BY id LIMIT :limit + 1",
            asdict(query),
        )
        return [Order(**row) for row in rows]

    def order(self, number: int) -> Order:
        return Order(**self._row("orders", number))

    def place_order(self, order: NewOrder) -> Order:
        pet = self.pet(order.pet_id)
        owner = self.owner(order.owner_id)
        if pet.status == "sold":
            raise Conflict(f"{pet.name} is sold already.")
        with self._db:
            self._db.execute("UPDATE pet SET status = 'sold' WHERE id = ?", (pet.id,))
            cursor = self._db.execute(
                "INSERT INTO orders (pet_id, owner_id, price_cents) VALUES (?, ?, ?)",
                (pet.id, owner.id, pet.price_cents),
            )
        return self.order(_new_id(cursor))

    def cancel_order(self, number: int) -> Order:
        order = self.order(number)
        if order.status == "cancelled":
            raise Conflict("The order is cancelled already.")
        with self._db:
            self._db.execute("UPDATE orders SET status = 'cancelled' WHERE id = ?", (number,))
            self._db.execute("UPDATE pet SET status = 'available' WHERE id = ?", (order.pet_id,))
        return self.order(number)

    def _row(self, table: str, number: int) -> dict[str, Any]:
        # As text, because a number may be larger than any that SQLite has.
        row = self._db.execute(f"SELECT * FROM {table} WHERE id = ?", (str(number),)).fetchone()
        if row is None:
            raise NotThere(table, number)
        return dict(row)


def _pet(row: Mapping[str, Any]) -> Pet:
    return Pet(**{**row, "tags": tuple(json.loads(row["tags"]))})


def _new_id(cursor: sqlite3.Cursor) -> int:
    if cursor.lastrowid is None:
        raise RuntimeError("SQLite inserted nothing")
    return cursor.lastrowid
