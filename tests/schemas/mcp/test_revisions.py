import pytest

from schemas.mcp import revisions
from schemas.mcp.revisions import HANDSHAKE, STATELESS, SUPPORTED, negotiate


def test_every_revision_is_known_by_its_date():
    assert list(HANDSHAKE) == ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"]
    assert list(STATELESS) == ["2026-07-28"]


def test_every_version_that_is_served_is_advertised_newest_first():
    """The advertised versions are all that an initialize or a request may name (mending 22)."""
    assert SUPPORTED == ("2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
    assert set(SUPPORTED) == {*HANDSHAKE, *STATELESS}


@pytest.mark.parametrize(
    ("requested", "answered"),
    [
        *((name, name) for name in HANDSHAKE),
        ("2026-07-28", "2025-11-25"),  # has no handshake: the latest that does
        ("2099-01-01", "2025-11-25"),
        ("1999-01-01", "2025-11-25"),
        ("", "2025-11-25"),
    ],
)
def test_initialize_is_answered_with_the_revision_asked_for_or_the_latest(requested, answered):
    assert negotiate(requested).name == answered


@pytest.mark.parametrize(
    ("fact", "holders"),
    [
        # reference: the changelog of each revision
        ("batches", {"2025-03-26", "jsonrpc"}),
        ("streamable", {"2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28", "jsonrpc"}),
        ("annotations", {"2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28", "jsonrpc"}),
        ("titles", {"2025-06-18", "2025-11-25", "2026-07-28", "jsonrpc"}),
        ("argument_results", {"2025-11-25", "2026-07-28"}),
        ("any_structure", {"2026-07-28", "jsonrpc"}),
        ("result_type", {"2026-07-28"}),
        ("routing_headers", {"2026-07-28"}),
        ("tools_are_methods", {"jsonrpc"}),
        ("handshake", {"2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"}),
    ],
)
def test_each_fact_holds_for_its_revisions(fact, holders):
    rows = [*HANDSHAKE.values(), *STATELESS.values(), revisions.JSON_RPC]
    assert {row.name for row in rows if getattr(row, fact)} == holders


def test_an_unknown_method_is_http_404_in_the_stateless_revision_only():
    statuses = {r.name: r.unknown_method_status for r in (*HANDSHAKE.values(), revisions.JSON_RPC)}
    assert set(statuses.values()) == {200}
    assert STATELESS["2026-07-28"].unknown_method_status == 404
