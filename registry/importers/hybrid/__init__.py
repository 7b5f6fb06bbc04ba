"""Hybrid services to tools: read the description, close its schemas, name, select. Pure.

Two forms are read: `spec.yaml` (host, service, a list of actions, shared schemas) and the older
`schema.json` (service id -> schema and scope). Where light-hybrid-4j silently gives up checking an
action, the outcome says so; what stands inline, which it never checks, is checked here. A key that
nobody knows is told; one that may have been meant to restrict an action costs that action.
"""

from registry.importers.hybrid.items import ID_LIMIT, size_of
from registry.importers.hybrid.read import (
    ServiceDescription,
    UnusableSchema,
    closed,
    described,
    read_file,
    read_spec,
)
from registry.importers.hybrid.tools import drafts, select

__all__ = [
    "ID_LIMIT",
    "ServiceDescription",
    "UnusableSchema",
    "closed",
    "described",
    "drafts",
    "read_file",
    "read_spec",
    "select",
    "size_of",
]
