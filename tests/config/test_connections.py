"""Settings of `connections`."""

import pytest

from config.load import SettingsError, load


def test_a_request_ends_before_renewals_are_repeated() -> None:
    load(None, {"TOOLGATE_CONNECTIONS__REQUEST_S": "14"})
    with pytest.raises(SettingsError) as caught:
        load(None, {"TOOLGATE_CONNECTIONS__REQUEST_S": "15"})
    [problem] = caught.value.problems
    assert "connections.request_s: expected less than connections.renew_timeout_s" in str(problem)
