"""Hybrid services to tools: read the description, bundle its schemas, name, select. Pure.

Two forms are read: `spec.yaml` (host, service, a list of actions, shared schemas) and the older
`schema.json` (service id -> schema and scope). Where light-hybrid-4j silently stops checking an
action, the outcome reports it; inline schemas, which it never checks, are checked here. Unknown
keys are reported; one that resembles a restriction costs its action.
"""

from registry.importers.hybrid.actions_to_tools import (
    ServiceDescription,
    UnusableSchema,
    close_schema,
    describe_actions,
    drafts,
    read_file,
    read_spec,
    select,
)
from registry.importers.hybrid.written_actions import ID_LIMIT, size_of

__all__ = [
    "ID_LIMIT",
    "ServiceDescription",
    "UnusableSchema",
    "close_schema",
    "describe_actions",
    "drafts",
    "read_file",
    "read_spec",
    "select",
    "size_of",
]
