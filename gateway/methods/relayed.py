"""What all methods share that other servers answer."""

from dataclasses import replace
from functools import partial
from typing import Any

from gateway.context import Context
from gateway.methods.server import WRITTEN
from gateway.protocol.shapes import View
from registry.catalog.catalog import Catalog
from schemas.jsonrpc import Request


def view(catalog: Catalog, source: str, context: Context) -> View:
    """How the client sees what the source of this name says."""
    return View(context.revision, partial(catalog.expose, source), WRITTEN)


def handed_on(context: Context, request: Request) -> Context:
    """The surroundings of a request that goes to another server as the client sent it."""
    return replace(context, params=members_of(request))


def members_of(request: Request) -> dict[str, Any]:
    return request.params if isinstance(request.params, dict) else {}
