"""Many tools of several tenants, with vectors in clusters as real ones lie."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from registry.database.postgres import Database
from tests.registry.search.meaning import store_vectors


@dataclass(frozen=True)
class Tenant:
    host_id: str
    vectors: Mapping[str, NDArray[np.float32]]  # by id of the tool

    def nearest(self, query: NDArray[np.float32], count: int) -> list[str]:
        """The truth."""
        ids = list(self.vectors)
        cosines = np.array([self.vectors[id_] for id_ in ids]) @ query
        return [ids[at] for at in np.argsort(-cosines, kind="stable")[:count]]


def host(number: int) -> str:
    return f"00000000-0000-0000-0000-{number:012d}"


def make_clusters(rng: np.random.Generator, count: int) -> NDArray[np.float32]:
    """Unit vectors around centres that all share a direction, 40 around each on average."""
    common = rng.standard_normal(384)
    centres = 0.6 * common + rng.standard_normal((max(count // 40, 1), 384))
    rows = centres[rng.integers(len(centres), size=count)]
    rows = rows + 0.5 * rng.standard_normal((count, 384))
    unit: NDArray[np.float32] = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(
        np.float32
    )
    return unit


async def tenant(database: Database, number: int, count: int) -> Tenant:
    """A tenant with so many tools; the word of each third of them is its own."""
    async with database.connect() as connection:
        await connection.execute(
            "INSERT INTO host_t (host_id, name) VALUES (%s, %s)", [host(number), str(number)]
        )
        rows = await connection.execute(
            "INSERT INTO tool_t (host_id, name, description, input_schema, binding)"
            " SELECT %s, 'tool_' || n, (ARRAY['First', 'Second', 'Third'])[n %% 3 + 1] || ' kind.',"
            ' \'{}\', \'{"type": "openapi", "method": "GET", "path": "/"}\''
            " FROM generate_series(1, %s) AS n RETURNING tool_id::text",
            [host(number), count],
        )
        ids = [id_ for (id_,) in await rows.fetchall()]
    vectors = make_clusters(np.random.default_rng(number), count)
    made = Tenant(host(number), dict(zip(ids, vectors, strict=True)))
    await store_vectors(database, dict(made.vectors), made.host_id)
    return made
