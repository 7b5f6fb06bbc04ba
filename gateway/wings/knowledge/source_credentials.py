"""Credentials of sources, stored as secrets of the source `knowledge`; the scheme of each says what
it is for.

It is a place, such as `github.com/acme`: what lies there or below is read with it, by all callers
of the tenant who may add documents.
"""

from urllib.parse import parse_qs, urlsplit

from urllib3.util import parse_url

from config.sources import SchemeSettings
from gateway.wings.documents.reading.reading_limits import ReadingRefused
from gateway.wings.documents.reading.source_files import source_url
from gateway.wings.documents.reading.url_and_s3_files import Bucket
from registry.access.secrets import Keys, Secrets
from registry.database.postgres import Pool

SECRETS = "knowledge"
AMAZON = "s3.amazonaws.com"
USER = "git"  # of tokens; services ignore it
NONE = SchemeSettings()


class PlaceCredentials:
    def __init__(self, pool: Pool, keys: Keys) -> None:
        self._pool = pool
        self._keys = keys

    async def of(self, tenant: str, place: str) -> SchemeSettings:
        """The credentials of the nearest place above; empty if there are none."""
        entries, _ = await Secrets(self._pool, tenant, self._keys).read()
        by_place = entries.get(SECRETS, {})
        above = [prefix for prefix in by_place if place == prefix or place.startswith(f"{prefix}/")]
        return by_place[max(above, key=len)] if above else NONE


def place_of(url: str) -> str:
    """Host and path of a URL as `source_url` returns it; a port is written behind `_`, as names of
    schemes have no colon."""
    parts = parse_url(url)
    port = f"_{parts.port}" if parts.port else ""
    return f"{parts.host}{port}{parts.path or ''}".removesuffix(".git").rstrip("/")


def login(entry: SchemeSettings) -> tuple[str, str]:
    """User and password for git; empty: none."""
    secret = entry.password or entry.token or entry.value or ""
    return (entry.username or USER, secret) if secret else ("", "")


def bucket_of(location: str) -> Bucket:
    """The bucket of `s3://BUCKET/PREFIX?region=...&endpoint=...`. Raises ReadingRefused."""
    try:
        parts = urlsplit(location)
    except ValueError as error:
        raise ReadingRefused(f"expected s3://BUCKET/PREFIX: {error}") from error
    parameters = parse_qs(parts.query)
    if (
        parts.scheme != "s3"
        or not parts.netloc.strip(".")
        or parameters.keys() - {"region", "endpoint"}
    ):
        raise ReadingRefused("expected s3://BUCKET/PREFIX, perhaps with ?region= and &endpoint=")
    region, endpoint = (parameters.get(name, [""])[0] for name in ("region", "endpoint"))
    if endpoint:
        endpoint = source_url(endpoint, "https", "http")
    return Bucket(
        parts.netloc, parts.path.lstrip("/"), region=region or "us-east-1", endpoint=endpoint
    )


def place_of_bucket(bucket: Bucket) -> str:
    """The host of the service, and the bucket in it."""
    host = place_of(bucket.endpoint) if bucket.endpoint else AMAZON
    return f"{host}/{bucket.name}/{bucket.prefix}".rstrip("/")
