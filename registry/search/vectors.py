"""Vectors as parameters of statements."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from psycopg.adapt import Dumper
from psycopg.pq import Format

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class HalfVector:
    """One as pgvector reads it: two 16-bit numbers, the first the dimension, then 32-bit floats."""

    data: bytes

    @classmethod
    def of(cls, row: "NDArray[np.float32]") -> "HalfVector":
        return cls(len(row).to_bytes(2) + b"\0\0" + row.astype(">f4").tobytes())


class VectorDumper(Dumper):
    """Without a type: the statement says `::vector`, whatever its number in this database."""

    format = Format.BINARY

    def dump(self, obj: Any) -> bytes:
        data: bytes = obj.data
        return data
