"""GraphQL schemas: introspected or fetched as bytes, and parsed from those.

The operator named the address, so it may be private, and receives the credentials of the settings;
therefore no redirect is followed. The answer is stored as received: parsing it is the importer's
job.
"""

import ssl
from collections.abc import Mapping
from dataclasses import replace
from urllib.parse import urlsplit

import aiohttp
import anyio
import msgspec
from msgspec import Raw, Struct
from yarl import URL

from config.settings import Imports
from registry.documents.containers import Bundle, unpack
from registry.documents.fetch import fetch, read_at_most
from registry.documents.ssrf_protection import PublicResolver, check_host, check_url_host, read_url
from registry.importers.drafts import ImportedDescription
from registry.importers.openapi import parse
from registry.sources.import_specs import ImportSpec
from registry.sources.source_reader import (
    OVERLAY_EXPECTED,
    OWN_TENANT,
    FoundSource,
    Limits,
    Origins,
    check_overlay,
    check_public,
    non_empty,
    reread,
    schemas_limit_bytes,
    with_location,
)
from schemas.errors import ImportRejected
from schemas.invisible_characters import without_hidden
from schemas.masking import mask_secrets
from schemas.source import GraphQLOptions
from schemas.urls import without_credentials

FILE_SUFFIXES = (".graphql", ".graphqls", ".gql", ".sdl", ".json", ".txt")
ERROR_CHARACTERS = 300  # characters of an endpoint's error message
WHOLE_WORD = 8  # characters; a shorter value of a header is masked where it is a word
SCHEMES = frozenset({"Basic", "Bearer", "Digest", "Token"})  # words of headers that are no secrets
_REMEDY = "Save its schema as SDL (most GraphQL tools can), and import that file with --base-url."

# Wrapped eight times at most: [[[T!]!]!]! and one more.
_REF = "kind name " + "ofType { kind name " * 8 + "}" * 8
_VALUE = f"name description defaultValue type {{ {_REF} }}"
# Added after October 2021, or queried from newer servers only; others refuse the whole query.
_RECENT_MEMBERS = {
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
    """Whether `location` is introspected instead of read: a URL that does not name a file."""
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
    """The introspection result of the endpoint at `location`, which has to be `public` if that is
    set: JSON with `__schema`. `tls`: True for the system's certificates. Raises ImportRejected,
    which names the remedy."""
    try:
        url = read_url(location)
        check_host(location)
    except ValueError as error:
        display_url = without_credentials(location)
        raise ImportRejected(f"Cannot ask {display_url}: {error}.") from error
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
                return await _introspect(session, url, headers, limit_bytes)
    except TimeoutError as error:
        raise ImportRejected(
            f"{url} did not answer within {timeout_s:g} s (setting imports.fetch_timeout_s)."
        ) from error
    except (aiohttp.ClientError, OSError) as error:
        raise ImportRejected(f"Cannot ask {url}: {error or type(error).__name__}.") from error


async def _introspect(
    session: aiohttp.ClientSession, url: URL, headers: Mapping[str, str], limit_bytes: int
) -> bytes:
    """The full introspection query; for a server that does not support it, the basic one."""
    status, body = await _post(session, url, headers, _query(recent=True), limit_bytes=limit_bytes)
    if not _is_schema(body) and _decode_answer(body).errors:
        status, body = await _post(
            session, url, headers, _query(recent=False), limit_bytes=limit_bytes
        )
    if _is_schema(body):
        return body
    raise ImportRejected(_refusal(url, status, body, headers))


def _query(*, recent: bool) -> bytes:
    query = _QUERY
    for placeholder, members_text in _RECENT_MEMBERS.items():
        query = query.replace(placeholder, members_text if recent else "")
    return msgspec.json.encode(
        {"query": " ".join(query.split()), "operationName": "Introspection", "variables": {}}
    )


async def _post(
    session: aiohttp.ClientSession,
    url: URL,
    headers: Mapping[str, str],
    query: bytes,
    *,
    limit_bytes: int,
) -> tuple[int, bytes]:
    request_headers = {
        "Content-Type": "application/json",
        "Accept": "application/graphql-response+json, application/json;q=0.9",
        "User-Agent": "toolgate",
        **headers,
    }
    async with session.post(
        url, data=query, headers=request_headers, allow_redirects=False
    ) as response:
        data = await read_at_most(response, limit_bytes)
    if data is None:
        raise ImportRejected(
            f"The schema at {url} is larger than {limit_bytes:,} bytes "
            "(setting imports.document_limit_bytes)."
        )
    return response.status, data


def _decode_answer(body: bytes) -> _Answer:
    try:
        return msgspec.json.decode(body, type=_Answer)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return _Answer()


def _is_schema(body: bytes) -> bool:
    data = _decode_answer(body).data
    try:
        members = msgspec.json.decode(data, type=dict[str, Raw])
    except (msgspec.DecodeError, RecursionError):
        return False
    return bytes(members.get("__schema", b"null")) != b"null"


def _refusal(url: URL, status: int, body: bytes, headers: Mapping[str, str]) -> str:
    answer = _decode_answer(body)
    if answer.errors:
        messages = "; ".join(filter(None, (_message(error) for error in answer.errors)))
        reason = _mask_secrets(messages, headers)[:ERROR_CHARACTERS] or "no reason given"
        return f"{url} refuses introspection: {reason}. {_REMEDY}"
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
        f"name has to end in one of {files}. {_REMEDY}"
    )


def _mask_secrets(text: str, headers: Mapping[str, str]) -> str:
    """The words of an endpoint without the values of the headers that it was sent, whole or behind
    their scheme, and without hidden characters."""
    parts = {part for value in headers.values() for part in (value, *value.split()) if part}
    words = {part for part in parts - SCHEMES if len(part) < WHOLE_WORD}
    secrets = parts - SCHEMES - words
    return mask_secrets(without_hidden(" ".join(text.split())), secrets, words)


def _message(error: object) -> str:
    try:
        return msgspec.convert(error, _Error).message.strip().rstrip(".")
    except msgspec.ValidationError:
        return ""


def needs_lister(spec: ImportSpec) -> bool:
    return is_endpoint(spec.location)


async def find_graphql(spec: ImportSpec, limits: Imports, origins: Origins) -> FoundSource:
    """The schema at the location, read or introspected, and its overlay. Raises ImportRejected."""
    check_public(spec)
    options = _options(spec)
    if not is_endpoint(spec.location):
        location, data = await _fetch(spec.location, limits, by_operator=not options.guarded)
    elif origins.lister is None:
        raise ImportRejected(
            f"The source {spec.name} is a GraphQL endpoint: {OWN_TENANT}; "
            "upload its schema as the document instead"
        )
    else:
        location, data = spec.location, await origins.lister(spec)
    bundle = Bundle(location, {location: data})
    if options.overlay is not None:
        check_overlay(options.overlay)
        at, overlay_file = await _fetch(options.overlay, limits)
        bundle = msgspec.structs.replace(bundle, overlay=overlay_file, overlay_location=at)
    return reread(replace(spec, location=location), bundle.pack(location), limits)


async def _fetch(location: str, limits: Imports, *, by_operator: bool = True) -> tuple[str, bytes]:
    fetched = await fetch(
        location,
        limit_bytes=limits.document_limit_bytes,
        timeout_s=limits.fetch_timeout_s,
        private_networks=limits.private_networks,
        by_operator=by_operator,
    )
    return fetched.location, fetched.data


def read_graphql(
    document: bytes, location: str, spec: ImportSpec, limits: Limits
) -> ImportedDescription:
    """Tools of what `find_graphql` has read, without network or file access. Raises
    ImportRejected."""
    # graphql-core takes 0.1 s to import, which every command would pay for
    from registry.importers.graphql import GraphQLChoice, GraphQLOverlay, read, read_overlay

    options, bundle = _options(spec), unpack(document, location)
    overlay_file = GraphQLOverlay()
    if bundle.overlay is not None:
        at = bundle.overlay_location
        overlay_file = read_overlay(parse(bundle.overlay, at, OVERLAY_EXPECTED, unique=True), at)
    choice = GraphQLChoice(
        spec.include,
        spec.exclude,
        overlay_file,
        options.only_marked,
        depth=options.depth,
        cost=options.cost,
        schemas_limit_bytes=schemas_limit_bytes(limits),
    )
    endpoint = location if is_endpoint(location) else None
    imported = read(bundle.files[bundle.entry], location, choice, endpoint)
    with with_location(location):
        return non_empty(imported)


def _options(spec: ImportSpec) -> GraphQLOptions:
    return spec.options if isinstance(spec.options, GraphQLOptions) else GraphQLOptions()
