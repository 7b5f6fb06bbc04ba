"""What happens to a text on its way: cut, overwritten, doubled, in another encoding. Pure."""

from random import Random

JUNK = (b"\x00", b"\xff", b"\xef\xbb\xbf", b'"', b"\\", b"{", b"}", b"[", b"]", b",", b":", b"\x1a",
        b"0", b"\xed\xa0\x80", b"\\ud800", b"\x0c")  # fmt: skip
LONG = 2_000_000
CALL = b'{"jsonrpc":"2.0","id":1,"method":"example.org/fuzz/echo/1.0.0","params":{"a":"'
INFLATED = (  # beginning, what is repeated, end
    (b'["', b"x", b'"]'),
    (b"[", b"1,", b"1]"),
    (b"[", b"[", b""),
    (b'{"a":"', b"\\\\", b'"}'),
    (b"", b" ", b"1"),
    (b"[", b"{}" + b" " * 100 + b",", b"1]"),
    (CALL, "é".encode(), b'"}}'),
    (b'{"jsonrpc":"2.0","id":1,"method":"', b"m", b'"}'),
    (b'{"jsonrpc":"2.0","id":"', b"i", b'","method":"ping"}'),
)


def damage_text(r: Random, text: bytes) -> bytes:
    at = r.randrange(len(text) + 1)
    match r.randrange(10):
        case 0 | 1:
            return text[:at]
        case 2 | 3:
            return text[:at] + bytes([r.randrange(256)]) + text[at + 1 :]
        case 4 | 5:
            return text[:at] + r.choice(JUNK) + text[at:]
        case 6:
            return text[:at] + text[min(len(text), at + r.randint(1, 5)) :]
        case 7:
            return r.choice((text + text, text + b"\n" + text, text + b"x", b"\x0b" + text))
        case 8:
            return r.choice((b"\xef\xbb\xbf" + text, _recode_text(text), b"", b" \r\n"))
    return r.randbytes(r.choice((1, 4, 40)))


def _recode_text(text: bytes) -> bytes:
    return text.decode("latin-1").encode("utf-16")


def inflate_text(r: Random) -> bytes:
    """Long, in one of the ways that cost a careless reader most."""
    shape = r.choice(INFLATED)
    many = shape[0] + shape[1] * (LONG // len(shape[1])) + shape[2]
    return many if r.random() < 0.9 else many * 3  # more than a gateway takes
