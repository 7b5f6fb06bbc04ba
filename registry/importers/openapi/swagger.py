"""Swagger 2.0: conversion of the document, except operations, to OpenAPI 3."""

from collections.abc import Iterator
from typing import Any

from registry.importers.openapi.values import mapping, sequence, text

_FLOWS = {"application": "clientCredentials", "accessCode": "authorizationCode"}


def upgraded(root: dict[str, Any]) -> dict[str, Any]:
    """`root` with `servers` and `components`. Reference targets keep their place, so references
    need no rewriting; operations are upgraded one by one."""
    schemes = {
        name: _security_scheme(mapping(scheme))
        for name, scheme in mapping(root.get("securityDefinitions")).items()
    }
    components = {"securitySchemes": schemes, "schemas": mapping(root.get("definitions"))}
    return {
        **root,
        "servers": list(servers(root, root.get("schemes"))),
        "components": components,
        # Azure: paths that differ in their queries only
        "paths": _paths(root),
    }


def _paths(root: dict[str, Any]) -> Any:
    paths, more = root.get("paths"), mapping(root.get("x-ms-paths"))
    return {**paths, **more} if more and isinstance(paths, dict) else paths


def servers(root: dict[str, Any], schemes: object) -> Iterator[dict[str, Any]]:
    """Server Objects from `host`, `basePath` and `schemes`, the best first. Without `schemes` it is
    that of the description's own URL (2.0, "Swagger Object"), and for a file https."""
    host = text(root.get("host"))
    stated = text(root.get("basePath")).strip("/")
    base = f"/{stated}" if stated else ""
    if "://" in host:  # often a URL, although illegal
        scheme, _, rest = host.partition("://")
        schemes, host = [scheme.lower()], rest.partition("/")[0]
    if not host:
        yield {"url": base or "/"}
        return
    known = [scheme for scheme in ("https", "http") if scheme in sequence(schemes)]
    for scheme in known:
        yield {"url": f"{scheme}://{host}{base}"}
    if not known:
        yield {"url": f"//{host}{base}"}
        yield {"url": f"https://{host}{base}"}


def _security_scheme(scheme: dict[str, Any]) -> dict[str, Any]:
    kind = scheme.get("type")
    if kind == "basic":
        return {**scheme, "type": "http", "scheme": "basic"}
    if kind != "oauth2":
        return scheme
    flow = text(scheme.get("flow"))
    members = ("authorizationUrl", "tokenUrl", "scopes")
    stated = {key: scheme[key] for key in members if key in scheme}
    rest = {key: value for key, value in scheme.items() if key not in (*members, "flow")}
    return {**rest, "flows": {_FLOWS.get(flow, flow): stated}}
