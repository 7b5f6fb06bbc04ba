"""All revisions of MCP, as parameters of tests."""

import pytest

from schemas.mcp.revisions import HANDSHAKE, STATELESS

REVISIONS = (*HANDSHAKE.values(), *STATELESS.values())
by_revision = pytest.mark.parametrize("revision", REVISIONS, ids=lambda revision: revision.name)
