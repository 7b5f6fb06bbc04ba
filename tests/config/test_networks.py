"""URLs of several hosts: `config.networks.split_hosts`."""

import pytest

from config.networks import split_hosts


def test_a_url_names_hosts_with_and_without_brackets() -> None:
    parts, hosts = split_hosts("redis+cluster://u:p%2F@a:7000,b,[::1]:7001/0?db=0")
    assert parts.geturl() == "redis+cluster://u:p%2F@localhost/0?db=0"
    assert [(host.hostname, host.port) for host in hosts] == [
        ("a", 7000),
        ("b", None),
        ("::1", 7001),
    ]


@pytest.mark.parametrize(
    "url", ["redis+cluster://a:x", "redis+cluster://[::1", "redis+cluster://a,]"]
)
def test_damaged_hosts_are_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"IPv6 URL|Port could not"):
        [host.port for host in split_hosts(url)[1]]


@pytest.mark.parametrize("url", ["", "redis+cluster:a", "redis+cluster:///0"])
def test_a_url_without_hosts_has_an_empty_host(url: str) -> None:
    assert [host.hostname for host in split_hosts(url)[1]] == [None]
