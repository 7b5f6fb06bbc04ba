"""Images of containers: a tag becomes the digest that it names now, and only the digest is run.

The registry of the image is asked for its manifest (OCI distribution, 1.1), without an account.
"""

import hashlib
import re
from dataclasses import replace
from urllib.parse import urlencode

import msgspec
from msgspec import Struct

from config.networks import is_loopback, is_unencrypted
from gateway.upstreams.mcp.registries.installed_packages import Workshop
from gateway.upstreams.mcp.registries.program_arguments import Arguments
from gateway.upstreams.mcp.registries.server_inputs import Inputs
from gateway.upstreams.mcp.registries.server_plans import ENVIRONMENT_PLACE, Program
from registry.documents.fetch import OF_DESCRIPTIONS, StatusRefused, fetch
from schemas.challenges import read_challenge
from schemas.errors import ImportRejected
from schemas.mcp.registry_entries import Package

MANIFEST_BYTES = 4 * 2**20  # the distribution specification asks registries to take as much
_MANIFESTS = ", ".join(
    (
        "application/vnd.oci.image.index.v1+json",
        "application/vnd.oci.image.manifest.v1+json",
        "application/vnd.docker.distribution.manifest.list.v2+json",
        "application/vnd.docker.distribution.manifest.v2+json",
    )
)
_IMAGE = re.compile(
    r"((?P<host>[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+(:[0-9]+)?|localhost(:[0-9]+)?)/)?"
    r"(?P<path>[a-z0-9]+([._-]+[a-z0-9]+)*(/[a-z0-9]+([._-]+[a-z0-9]+)*)*)"
    r"(:(?P<tag>\w[\w.-]{0,127}))?(@(?P<digest>sha256:[0-9a-f]{64}))?",
    re.ASCII,
)


class _Token(Struct, frozen=True):
    token: str = ""
    access_token: str = ""


async def program(
    workshop: Workshop, package: Package, arguments: Arguments, _inputs: Inputs
) -> Program:
    """Raises ImportRejected."""
    match = _IMAGE.fullmatch(package.identifier)
    tag = match and (match["tag"] or package.version)
    if match is None or not (tag or match["digest"]):
        raise ImportRejected(f"{package.identifier[:200]!r} is no image with a tag or a digest.")
    host = match["host"] or "docker.io"
    path = match["path"] if match["host"] or "/" in match["path"] else f"library/{match['path']}"
    digest = match["digest"] or await _digest(workshop, host, path, str(tag))
    image = f"{host}/{path}@{digest}"
    runtime = arguments.of_runtime(package.runtime_arguments, in_container=True)
    docker = workshop.settings.docker

    async def install() -> str:
        workshop.root.mkdir(parents=True, exist_ok=True, mode=0o700)
        await workshop.run((docker, "pull", "--quiet", image), workshop.root)
        return digest

    command = (docker, "run", "--rm", "-i", ENVIRONMENT_PLACE, *runtime, image)
    return Program(command, digest, install, hosts=(host,))


async def _digest(workshop: Workshop, host: str, path: str, tag: str) -> str:
    """The digest of the manifest that a tag names now, computed, not believed."""
    at = "registry-1.docker.io" if host == "docker.io" else host
    scheme = "http" if is_loopback(at.partition(":")[0]) else "https"
    url = f"{scheme}://{at}/v2/{path}/manifests/{tag}"
    try:
        manifest = await _get(workshop, url, {"Accept": _MANIFESTS})
    except StatusRefused as refused:
        if refused.status != 401:
            raise
        token = await _token(workshop, refused.challenge, path)
        accept = {"Accept": _MANIFESTS, "Authorization": f"Bearer {token}"}
        manifest = await _get(workshop, url, accept)
    return f"sha256:{hashlib.sha256(manifest).hexdigest()}"


async def _token(workshop: Workshop, header: str, path: str) -> str:
    """An anonymous token that may pull. Raises ImportRejected."""
    challenge = read_challenge([header])
    realm = challenge.realm if challenge else ""
    if challenge is None or not realm.startswith("http") or is_unencrypted(realm):
        raise ImportRejected("The registry of the image needs credentials: name its digest.")
    query = {"scope": f"repository:{path}:pull"}
    if challenge.service:
        query["service"] = challenge.service
    answer = await _get(workshop, f"{realm}?{urlencode(query)}", {"Accept": "application/json"})
    try:
        token = msgspec.json.decode(answer, type=_Token)
    except msgspec.MsgspecError as error:
        raise ImportRejected(f"The registry of the image gave no token: {error}.") from error
    text = token.token or token.access_token
    if not re.fullmatch(r"[\x21-\x7e]+", text):
        raise ImportRejected("The registry of the image gave no token.")
    return text


async def _get(workshop: Workshop, url: str, headers: dict[str, str]) -> bytes:
    answer = await fetch(
        url,
        limit_bytes=min(MANIFEST_BYTES, workshop.settings.limit_bytes),
        timeout_s=workshop.limits.fetch_timeout_s,
        private_networks=workshop.limits.private_networks,
        by_operator=False,
        settings=replace(OF_DESCRIPTIONS, headers=tuple(headers.items()), same_origin=True),
    )
    return answer.data
