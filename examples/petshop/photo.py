"""Photographs of pets, taken by arithmetic: a paw on the colour of the species, as PNG."""

import struct
import zlib

PAW = (
    "................",
    "................",
    "....##....##....",
    "...####..####...",
    "...####..####...",
    "...####..####...",
    ".##.##....##.##.",
    "####........####",
    "####..####..####",
    ".##.########.##.",
    "...##########...",
    "..############..",
    "..############..",
    "..####....####..",
    "................",
    "................",
)
COLOURS = {
    "dog": (176, 122, 70),
    "cat": (120, 120, 132),
    "rabbit": (206, 186, 164),
    "parrot": (46, 160, 84),
    "goldfish": (240, 150, 40),
}
WHITE = (255, 255, 255)


def photo(species: str, size: int) -> bytes:
    """A PNG of `size` by `size` pixels, with a palette of two colours (PNG, section 11.2)."""
    rows = (_row(PAW[y * len(PAW) // size], size) for y in range(size))
    palette = bytes((*COLOURS[species], *WHITE))
    return b"".join(
        (
            b"\x89PNG\r\n\x1a\n",
            _chunk(b"IHDR", struct.pack(">IIBBBBB", size, size, 8, 3, 0, 0, 0)),
            _chunk(b"PLTE", palette),
            _chunk(b"IDAT", zlib.compress(b"".join(rows))),
            _chunk(b"IEND", b""),
        )
    )


def _row(pattern: str, size: int) -> bytes:
    # The leading zero: no filter.
    return bytes((0, *(pattern[x * len(pattern) // size] == "#" for x in range(size))))


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
