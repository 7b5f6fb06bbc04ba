"""A route keeps its handler where a middleware has nothing to do for it."""

import pytest
from msgspec.structs import replace

from gateway.interfaces import Route
from gateway.middleware.message_metrics import LegacyUse
from gateway.middleware.rate_limits import RateLimits
from gateway.state.rate_windows import LocalRates
from schemas.mcp.revisions import HYBRID, JSON_RPC, V2025_11_25, V2026_07_28
from tests.gateway.middleware.test_audit_trail import Log
from tests.gateway.middleware.test_rate_limits import NONE


async def handler(_context, _request):
    return None


@pytest.mark.parametrize("revision", [JSON_RPC, V2025_11_25, V2026_07_28])
def test_only_the_legacy_payload_counts_as_legacy_use(revision):
    use = LegacyUse()
    assert use.middleware(handler, Route(revision, "tools/call")) is handler
    assert use.middleware(handler, Route(HYBRID, "")) is not handler


@pytest.mark.parametrize("method", ["initialize", "ping", "notifications/", "notifications/x"])
def test_methods_that_are_free_pass_no_limit(method):
    limiting = RateLimits(replace(NONE, principal_calls=1), LocalRates())
    assert limiting.middleware(handler, Route(V2025_11_25, method)) is handler
    assert limiting.middleware(handler, Route(JSON_RPC, method)) is not handler


def test_lasting_methods_pass_no_limit_without_rates():
    limiting = RateLimits(NONE, LocalRates())
    assert limiting.middleware(handler, Route(V2026_07_28, "subscriptions/listen")) is handler


@pytest.mark.parametrize("method", ["ping", "tools/list", "tasks/get", "notifications/"])
def test_methods_that_are_not_recorded_pass_no_audit(tmp_path, method):
    trail = Log(tmp_path / "spool").trail
    assert trail.middleware(handler, Route(V2025_11_25, method)) is handler
    assert trail.middleware(handler, Route(V2025_11_25, "tools/call")) is not handler
