import pytest

from registry.documents.ssrf_protection import (
    PrivateAddress,
    PublicResolver,
    check_url_host,
    is_public,
    read_url,
)


@pytest.mark.parametrize(
    "address",
    ["8.8.8.8", "1.1.1.1", "2606:4700:4700::1111", "::ffff:8.8.8.8", "64:ff9b::8.8.8.8"],
)
def test_addresses_of_the_public_internet(address):
    assert is_public(address)


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "10.1.2.3",
        "172.16.0.1",
        "192.168.1.1",
        "169.254.169.254",  # metadata of most clouds
        "100.100.100.200",  # of Alibaba, in the carriers' range
        "168.63.129.16",  # Azure's wire server: looks public
        "192.0.0.192",  # metadata of an older cloud of Oracle
        "0.0.0.0",
        "224.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "fe80::1",
        "fe80::1%eth0",
        "fd00:ec2::254",
        "fec0::1",
        "ff02::1",
        "::ffff:127.0.0.1",
        "::ffff:10.0.0.1",
        "::7f00:1",  # IPv4-compatible
        "2002:7f00:1::",  # 6to4 of 127.0.0.1
        "64:ff9b::10.0.0.1",  # NAT64
        "2001:0:53aa:64c::1",  # Teredo
    ],
)
def test_addresses_that_lead_elsewhere(address):
    assert not is_public(address)


def test_a_name_is_no_address():
    with pytest.raises(ValueError, match="localhost"):
        is_public("localhost")


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:80/x", "https://[::1]/", "http://[::ffff:a00:1]"]
)
def test_a_literal_private_host_is_refused(url):
    with pytest.raises(PrivateAddress, match="is not a public address"):
        check_url_host(url)


@pytest.mark.parametrize("url", ["https://8.8.8.8/", "https://api.example.com/v1"])
def test_public_literals_and_names_pass(url):
    check_url_host(url)


@pytest.mark.anyio
async def test_a_name_that_resolves_to_a_private_address_is_refused():
    with pytest.raises(PrivateAddress, match=r"localhost \((127\.0\.0\.1|::1)\) is not a public"):
        await PublicResolver().resolve("localhost", 80)


@pytest.mark.parametrize(
    "url", ["https://a.example:99999/x?key=hunter2", "https://a..b/?k=hunter2"]
)
def test_a_host_that_is_none_is_named_without_the_query(url):
    """An address that is refused is told without its query, which may be a key (mending 14)."""
    with pytest.raises(ValueError, match="expected a URL with the name") as caught:
        check_url_host(url)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("text", ["//[a]b]@", "https://[a]@", "//[]x@", "https://[::1"])
def test_a_url_whose_host_cannot_be_read_is_a_wrong_value(text: str) -> None:
    """Locations of redirects made calls and imports end as internal errors."""
    with pytest.raises(ValueError, match=r"host|IPv6|brackets"):
        read_url(text)
