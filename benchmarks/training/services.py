"""Operations of services that describe themselves in other formats than OpenAPI, read from the
packages of their clients: Google's discovery documents (`google-api-python-client`) and AWS's
service models (`botocore`).

A package is the wheel as `pip download` brings it; it is read as a zip file, nothing of it is
imported. Both say what hundreds of real services can do, most of it in one terse sentence.
"""

import gzip
import json
import re
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.training.data import Pair
from benchmarks.training.operations import ApiOperation, ApiParameter, plain, request, variant
from benchmarks.training.sets import BadTrainingSet, seeded
from registry.embedding.texts import identifier_words

PER_SERVICE = 60  # operations
PARAMETERS = 12  # of an operation
VALUES = 4  # of an enumeration
_GOOGLE = re.compile(r"/discovery_cache/documents/([^/.]+)\.([^/]+)\.json\Z")
_AWS = re.compile(r"/data/([^/]+)/([^/]+)/service-2\.json(\.gz)?\Z")
_STABLE = re.compile(r"v\d+(_\d+)?\Z")


def service_operations(wheel: Path) -> dict[str, list[ApiOperation]]:
    """The operations of each service, of its newest version. Raises BadTrainingSet."""
    try:
        with zipfile.ZipFile(wheel) as opened:
            operations_ = dict(_services(opened))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, zipfile.BadZipFile) as error:
        raise BadTrainingSet(f"{wheel}: expected a wheel of service models: {error}") from error
    if not operations_:
        raise BadTrainingSet(f"{wheel}: no discovery document and no service model in it")
    return operations_


def service_pairs(wheel: Path, seed: int) -> list[Pair]:
    """A pair for each of PER_SERVICE operations of each service. Raises BadTrainingSet."""
    pairs = []
    for service, operations in service_operations(wheel).items():
        chance = seeded(f"{seed} {service}")
        for operation in chance.sample(operations, min(PER_SERVICE, len(operations))):
            tool = variant(operation, chance)
            pairs.append(
                Pair(
                    request(operation, chance), tool, frozenset((tool.id,)), service, distinct=True
                )
            )
    return pairs


def _services(opened: zipfile.ZipFile) -> Iterator[tuple[str, list[ApiOperation]]]:
    for pattern, read_operations in ((_GOOGLE, _google), (_AWS, _aws)):
        newest: dict[str, tuple[tuple[bool, str], str]] = {}
        for name in opened.namelist():
            if match := pattern.search(name):
                rank = (pattern is _AWS or bool(_STABLE.match(match[2])), match[2])
                newest[match[1]] = max(newest.get(match[1], (rank, name)), (rank, name))
        for service, (_, name) in sorted(newest.items()):
            data = opened.read(name)
            document = json.loads(gzip.decompress(data) if name.endswith(".gz") else data)
            yield service, list(read_operations(document))


def _google(document: Mapping[str, Any]) -> Iterator[ApiOperation]:
    """Each once, wherever its resource is: `projects.jobs.list` stands for `folders.jobs.list`."""
    schemas, names = document.get("schemas", {}), set()
    for method in _methods(document):
        *_, resource, verb = method["id"].split(".")
        if (resource, verb) in names:
            continue
        names.add((resource, verb))
        body = schemas.get(method.get("request", {}).get("$ref"), {}).get("properties", {})
        parameters = {**method.get("parameters", {}), **body}
        yield ApiOperation(
            api=str(document.get("title") or document["name"]),
            method=method["httpMethod"].lower(),
            path=f"/{method.get('flatPath') or method['path']}",
            name=method["id"].partition(".")[2],
            description=plain(method.get("description", "")),
            tags=(resource,),
            parameters=tuple(
                ApiParameter(name, _values(field)) for name, field in parameters.items()
            )[:PARAMETERS],
            spoken=f"{identifier_words(verb)} {identifier_words(resource)}",
        )


def _methods(node: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for resource in node.get("methods", {}).values():
        if "id" in resource and "httpMethod" in resource:
            yield resource
    for resource in node.get("resources", {}).values():
        yield from _methods(resource)


def _aws(document: Mapping[str, Any]) -> Iterator[ApiOperation]:
    """The path is mostly "/": names say what is done."""
    shapes = document["shapes"]
    for name, operation in document["operations"].items():
        members = shapes.get(operation.get("input", {}).get("shape"), {}).get("members", {})
        http = operation.get("http", {})
        yield ApiOperation(
            api=str(document["metadata"].get("serviceId") or document["metadata"]["uid"]),
            method=str(http.get("method", "POST")).lower(),
            path=str(http.get("requestUri", "/")).partition("?")[0],
            name=name,
            description=plain(operation.get("documentation", "")),
            tags=(),
            parameters=tuple(
                ApiParameter(member, _values(shapes.get(of["shape"], {})))
                for member, of in members.items()
            )[:PARAMETERS],
            spoken=identifier_words(name),
        )


def _values(schema: Mapping[str, Any]) -> tuple[str, ...]:
    listed = schema.get("enum") or ()
    named = (name for name in listed if isinstance(name, str) and not name.endswith("UNSPECIFIED"))
    return tuple(named)[:VALUES]
