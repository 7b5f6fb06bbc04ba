"""Case `number` of a seed: one HTTP request to one front of one gateway. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from urllib.parse import quote, quote_from_bytes, quote_plus

from tests.fuzz import messages
from tests.fuzz.damage import damage_text, inflate_text
from tests.fuzz.values import deep, spell, value

GATEWAYS = {"strict": 5, "spec": 3, "jwt": 2}
FRONTS = {"rpc": 6, "query": 5, "command": 5, "session": 4, "stateless": 3, "bare": 1, "message": 3}
PATHS = {
    "rpc": b"/rpc",
    "query": b"/portal/query",
    "command": b"/portal/command",
    "session": b"/mcp",
    "stateless": b"/mcp",
    "bare": b"/mcp",
    "message": b"/mcp/message",
}
PORTAL = ("query", "command")
MCP = ("session", "stateless", "bare", "message")
SESSIONS = ("2025-03-26", "2025-06-18", "2025-11-25")
UNFIT = bytes({*range(33), *b"#", *range(127, 256)})  # for an address, whatever it may lead to
CMD_LIMIT = 8000  # bytes of JSON; an address should not be longer

Headers = tuple[tuple[bytes, bytes], ...]


@dataclass(frozen=True, slots=True)
class Case:
    seed: int
    number: int
    gateway: str
    front: str
    method: bytes
    target: bytes  # `{name}` here and in the headers stands for what only a running gateway knows
    headers: Headers
    body: bytes
    text: bytes | None  # the JSON text that the front has to read; None: it may read anything

    def request(self, values: Mapping[str, bytes]) -> bytes:
        """The bytes on the wire."""
        lines = [b"%s %s HTTP/1.1" % (self.method, self.target), b"host: 127.0.0.1"]
        lines += [b"%s: %s" % header for header in self.headers]
        head = b"\r\n".join(lines)
        for name, said in values.items():
            head = head.replace(b"{%s}" % name.encode(), said)
        return head + b"\r\ncontent-length: %d\r\n\r\n" % len(self.body) + self.body


def make(seed: int, number: int) -> Case:
    r = Random(f"{seed}/{number}")
    gateway, front = _pick_weighted(r, GATEWAYS), _pick_weighted(r, FRONTS)
    message = _message(r, front)
    text = _text(r, front, message)
    headers = _headers(r, gateway, front, message)
    method, target = b"POST", PATHS[front]
    if front in PORTAL and len(text) <= CMD_LIMIT and r.random() < 0.4:
        query, read = _query(r, text)
        return Case(seed, number, gateway, front, b"GET", target + b"?" + query, headers, b"", read)
    if front == "message":
        target += b"?session_id=" + (b"{stream}" if r.random() < 0.95 else b"%00nobody")
    elif r.random() < 0.01:
        method = r.choice((b"PUT", b"PATCH", b"OPTIONS", b"GET"))
        headers = tuple(one for one in headers if one[0] != b"accept")  # or GET would stream
        return Case(seed, number, gateway, front, method, target, headers, text, None)
    return Case(seed, number, gateway, front, method, target, headers, text, text)


def _pick_weighted(r: Random, weights: Mapping[str, int]) -> str:
    return r.choices(tuple(weights), tuple(weights.values()))[0]


def _message(r: Random, front: str) -> object:
    if front == "stateless":
        return messages.stateless(r)
    if front in MCP:
        return messages.mcp(r)
    return messages.legacy(r) if r.random() < (0.5 if front in PORTAL else 0.1) else messages.rpc(r)


def _text(r: Random, front: str, message: object) -> bytes:
    roll = r.random()
    if roll < 0.002:
        return inflate_text(r)
    if roll < 0.012:
        return bytes(deep(r))
    if roll < 0.07:
        return spell(r, value(r))
    if roll < 0.2:
        return spell(r, messages.batch(r, lambda r: _message(r, front)))
    if roll < 0.4 and isinstance(message, dict):
        return spell(r, messages.twist_message(r, message))
    text = spell(r, message)
    return text if roll < 0.8 else damage_text(r, text)


def _query(r: Random, text: bytes) -> tuple[bytes, bytes | None]:
    """The query of a GET, and what it says; None where it is wrong or says something else."""
    right = quote_from_bytes(text, safe="").encode()
    match r.randrange(20):
        case 0:
            return b"cmd=" + damage_text(r, right).translate(None, UNFIT), None
        case 1:
            return b"cmd=" + text.translate(None, UNFIT), None
        case 2:
            return r.choice((b"cmd=1&cmd=" + right, b"", b"cmd", b"cmd=", b"CMD=" + right)), None
        case 3:
            return b"cmd=" + right.replace(b"%", b"%25"), None
        case 4:
            payload = messages.legacy(r)
            parts = [f"{name}={quote(str(said))}" for name, said in payload.items()]
            return "&".join([*parts, "a=%ff" if r.random() < 0.1 else "b=1"]).encode(), None
        case 5:
            return b"x=%2526&cmd=" + right.lower() + b"&y=1", None
        case 6 | 7:
            return b"cmd=" + quote_plus(text).encode(), text
    return b"cmd=" + right, text


def _headers(r: Random, gateway: str, front: str, message: object) -> Headers:
    headers = [(b"content-type", _content_type(r)), (b"accept", _accept(r))]
    if gateway == "jwt" or r.random() < 0.03:
        headers += _credentials(r)
    if front == "session":
        revision = r.choice(SESSIONS)
        session = f"{{{revision}}}" if r.random() < 0.97 else "nobody"
        headers.append((b"mcp-session-id", session.encode()))
        headers.append((b"mcp-protocol-version", revision.encode()))
    elif front == "stateless" and isinstance(message, dict):
        headers += _mirror_headers(message)
    if r.random() < 0.04:
        headers += r.sample(headers, 1)
    if r.random() < 0.15:
        headers += _odd(r)
    return tuple(one for one in headers if r.random() < 0.995)


def _content_type(r: Random) -> bytes:
    right = r.choice((b"application/json", b"Application/JSON; charset=utf-8"))
    wrong = r.choice((b"text/plain", b"", b"application/json-rpc", b"\xff", b";"))
    return right if r.random() < 0.97 else wrong


def _accept(r: Random) -> bytes:
    right = r.choice((b"application/json, text/event-stream", b"*/*", b"application/json"))
    return right if r.random() < 0.98 else r.choice((b"text/html", b"", b"\xff", b"a" * 3000))


def _credentials(r: Random) -> list[tuple[bytes, bytes]]:
    good = (b"{valid}",) * 12 + (b"{reader}",) * 3
    bad = (b"{expired}", b"{forged}", b"", b"x.y.z", b"a" * 10_000, b"\xff\xfe", b"..", b"e30.e30.")
    token = r.choice((good, good, good, bad)[r.randrange(4)])
    scheme = r.choice((b"Bearer ",) * 30 + (b"bearer ", b"Basic ", b"", b"Bearer"))
    headers = [(b"authorization", scheme + token)]
    if r.random() < 0.1:
        headers.append((b"x-scope-token", b"Bearer " + r.choice((*good, *bad))))
    return headers


def _mirror_headers(message: Mapping[str, object]) -> list[tuple[bytes, bytes]]:
    params = message.get("params")
    method, name = message.get("method"), params.get("name") if isinstance(params, dict) else None
    headers = [(b"mcp-protocol-version", messages.MODERN.encode())]
    for header, said in ((b"mcp-method", method), (b"mcp-name", name)):
        if isinstance(said, str) and said.isascii() and said.isprintable():
            headers.append((header, said.encode()))
    return headers


def _odd(r: Random) -> list[tuple[bytes, bytes]]:
    keys = (b"", b"k", b"key-1", b"k" * 128, b"k" * 129, b"k" * 5000, b"\xff\x80" * 99, b"\t")
    if r.random() < 0.3:
        return [
            (b"idempotency-key", r.choice(keys) if r.random() < 0.7 else b"%d" % r.randrange(200))
        ]
    one = r.choice(
        (
            (b"x-correlation-id", r.choice((b"", b"\xff", b"c" * 4000))),
            (b"sec-fetch-site", r.choice((b"cross-site", b"same-origin", b"\xff"))),
            (b"mcp-protocol-version", r.choice((b"", b"2099-01-01", b"\xff", b"2026-07-28"))),
            (b"mcp-session-id", r.choice((b"", b"\xff", b"s" * 3000))),
            (b"mcp-name", r.choice((b"=?base64?////?=", b"=?base64?R2V0?=", b"\xff"))),
            (b"origin", r.choice((b"null", b"http://127.0.0.1", b"\xff", b"https://e.org"))),
            (b"x-traceability-id", b"\xff" * 20),
            (b"last-event-id", b"7"),
        )
    )
    return [one]
