"""Many numbers as one parameter of a statement, in PostgreSQL's binary format of real[].

As text they would take longer than all else that is done with a vector but making it.
"""

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from psycopg.adapt import Dumper
from psycopg.pq import Format

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_REAL = 700  # oids, of pg_type.dat
_REALS = 1021
_HEAD = struct.Struct("!iiIii")  # dimensions, whether there are nulls, type, length, lower bound


@dataclass(frozen=True, slots=True)
class Reals:
    """A parameter, of cursors that have `RealsDumper` registered."""

    numbers: "NDArray[np.float32]"  # shape (n,), n > 0


class RealsDumper(Dumper):
    format = Format.BINARY
    oid = _REALS

    def dump(self, obj: Any) -> bytes:
        import numpy as np

        count = len(obj.numbers)
        body = np.empty(count, dtype=[("size", ">i4"), ("number", ">f4")])
        body["size"] = 4
        body["number"] = obj.numbers
        return _HEAD.pack(1, 0, _REAL, count, 1) + body.tobytes()
