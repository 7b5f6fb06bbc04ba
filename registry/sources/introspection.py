"""Asking a GraphQL endpoint what it can do.

The operator named the address, so it may be private, and credentials of the settings go there; so
no redirect is followed. The answer is kept as it came: reading it is for the importer.
"""

import ssl
from collections.abc import Mapping
from urllib.parse import urlsplit

import aiohttp
import anyio
import msgspec
from msgspec import Raw, Struct
from yarl import URL

from registry.documents.addresses import PublicResolver, check_host, check_url_host
from registry.documents.bodies import read_at_most
from schemas.errors import ImportRejected

FILE_SUFFIXES = (".graphql", ".graphqls", ".gql", ".sdl", ".json", ".txt")
SHOWN = 300  # characters of what an endpoint says against it
_INSTEAD = "Save its schema as SDL (most GraphQL tools can), and import that file with --base-url."

# Wrapped eight times at most: [[[T!]!]!]! and one more.
_REF = "kind name " + "ofType { kind name " * 8 + "}" * 8
_VALUE = f"name description defaultValue type {{ {_REF} }}"
# What came after October 2021, or is asked of newer servers only; others refuse the whole query.
_RECENT = {
    "{scalar}": "specifiedByURL",
    "{input}": "isOneOf",
    "{schema}": "description",
    "{deprecated}": "(includeDeprecated: true)",
    "{value}": "isDeprecated deprecationReason",
}
_QUERY = f"""query Introspection {{ __schema {{ {{schema}}
  queryType {{ name }} mutationType {{ name }} subscriptionType {{ name }}
  types {{ kind name description {{scalar}} {{input}}
    fields(includeDeprecated: true) {{ name description isDeprecated deprecationReason
      args{{deprecated}} {{ {_VALUE} {{value}} }} type {{ {_REF} }} }}
    inputFields{{deprecated}} {{ {_VALUE} {{value}} }}
    enumValues(includeDeprecated: true) {{ name description isDeprecated deprecationReason }}
    possibleTypes {{ name }} }} }} }}"""


class _Answer(Struct):
    data: Raw = Raw(b"null")
    errors: list[object] | None = None


class _Error(Struct):
    message: str = ""


def is_endpoint(location: str) -> bool:
    """Whether `location` is to be asked, instead of read: a URL that does not name a file."""
    parts = urlsplit(location)
    return parts.scheme in ("http", "https") and not parts.path.lower().endswith(FILE_SUFFIXES)


async def introspect(
    location: str,
    headers: Mapping[str, str],
    *,
    limit_bytes: int,
    timeout_s: float,
    public: bool = False,
    tls: ssl.SSLContext | bool = True,
) -> bytes:
    """The answer of the endpoint at `location`, which has to be `public` if that is so: JSON with
    `__schema`. `tls`: True for the system's certificates. Raises ImportRejected, which says what
    to do."""
    try:
        url = URL(location)
        check_host(location)
    except ValueError as error:
        raise ImportRejected(f"Cannot ask {location}: {error}.") from error
    if url.user or url.password:
        raise ImportRejected(
            f"{url.with_user(None)}: expected a URL without credentials; they go into the settings "
            "of the source, as `headers`."
        )
    try:
        if public:
            check_url_host(location)
        with anyio.fail_after(timeout_s):
            connector = aiohttp.TCPConnector(resolver=PublicResolver() if public else None, ssl=tls)
            timeout = aiohttp.ClientTimeout(total=None)
            async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
                return await _ask(session, url, headers, limit_bytes)
    except TimeoutError as error:
        raise ImportRejected(
            f"{url} did not answer within {timeout_s:g} s (setting imports.fetch_timeout_s)."
        ) from error
    except (aiohttp.ClientError, OSError) as error:
        raise ImportRejected(f"Cannot ask {url}: {error or type(error).__name__}.") from error


async def _ask(
    session: aiohttp.ClientSession, url: URL, headers: Mapping[str, str], limit_bytes: int
) -> bytes:
    """All there is to know; of a server that does not understand the question, what all know."""
    status, body = await _post(session, url, headers, _query(recent=True), limit_bytes)
    if not _is_schema(body) and _says_errors(body):
        status, body = await _post(session, url, headers, _query(recent=False), limit_bytes)
    if _is_schema(body):
        return body
    raise ImportRejected(_refused(url, status, body))


def _query(*, recent: bool) -> bytes:
    query = _QUERY
    for mark, words in _RECENT.items():
        query = query.replace(mark, words if recent else "")
    return msgspec.json.encode(
        {"query": " ".join(query.split()), "operationName": "Introspection", "variables": {}}
    )


async def _post(
    session: aiohttp.ClientSession,
    url: URL,
    headers: Mapping[str, str],
    query: bytes,
    limit_bytes: int,
) -> tuple[int, bytes]:
    sent = {
        "Content-Type": "application/json",
        "Accept": "application/graphql-response+json, application/json;q=0.9",
        "User-Agent": "toolgate",
        **headers,
    }
    async with session.post(url, data=query, headers=sent, allow_redirects=False) as response:
        data = await read_at_most(response, limit_bytes)
    if data is None:
        raise ImportRejected(
            f"The schema at {url} is larger than {limit_bytes:,} bytes "
            "(setting imports.document_limit_bytes)."
        )
    return response.status, data


def _decoded(body: bytes) -> _Answer:
    try:
        return msgspec.json.decode(body, type=_Answer)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return _Answer()


def _is_schema(body: bytes) -> bool:
    data = _decoded(body).data
    try:
        members = msgspec.json.decode(data, type=dict[str, Raw])
    except (msgspec.DecodeError, RecursionError):
        return False
    return bytes(members.get("__schema", b"null")) != b"null"


def _says_errors(body: bytes) -> bool:
    return bool(_decoded(body).errors)


def _refused(url: URL, status: int, body: bytes) -> str:
    answer = _decoded(body)
    if answer.errors:
        told = "; ".join(filter(None, (_message(error) for error in answer.errors)))
        return f"{url} refuses introspection: {told[:SHOWN] or 'it does not say why'}. {_INSTEAD}"
    if status in (401, 403):
        return (
            f"{url} answered {status}: it wants credentials. Put them into the settings of the "
            'source, as in headers: {Authorization: "Bearer ${TOKEN}"}.'
        )
    if 300 <= status < 400:
        return f"{url} redirects elsewhere (HTTP {status}); name the address that it leads to."
    files = ", ".join(FILE_SUFFIXES)
    return (
        f"{url} did not answer as a GraphQL endpoint (HTTP {status}). If a schema lies there, its "
        f"name has to end in one of {files}. {_INSTEAD}"
    )


def _message(error: object) -> str:
    try:
        return msgspec.convert(error, _Error).message.strip().rstrip(".")
    except msgspec.ValidationError:
        return ""
