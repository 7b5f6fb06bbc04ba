"""Cards of agents as tools: which interface is called, and what is refused."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from registry.importers.a2a import read_card
from schemas.binding import A2aBinding
from schemas.errors import ImportRejected
from schemas.source import A2aOptions
from tests.servers.agent import ScriptedAgent

HOME = "https://agents.example.com/travel"


def card(*interfaces: tuple[str, str, str], **members: Any) -> dict[str, Any]:
    """A card of 1.0; `interfaces`: URL, transport and version of each."""
    names = ("url", "protocolBinding", "protocolVersion")
    offered = [dict(zip(names, each, strict=True)) for each in interfaces]
    return {**ScriptedAgent().card, "supportedInterfaces": offered, **members}


def interface(path: str = "/a", transport: str = "JSONRPC", version: str = "1.0") -> Any:
    return f"https://agents.example.com{path}", transport, version


def binding_of(document: Any, allowed_hosts: tuple[str, ...] = ()) -> A2aBinding:
    [draft] = read_card(
        json.dumps(document).encode(), HOME, "trips", A2aOptions(allowed_hosts)
    ).drafts
    assert isinstance(draft.binding, A2aBinding)
    return draft.binding


@pytest.mark.parametrize(
    ("offered", "expected"),
    [
        ([interface("/g", "GRPC"), interface("/r", "HTTP+JSON")], ("/r", "HTTP+JSON", "1.0")),
        ([interface("/old", version="0.3"), interface("/new")], ("/old", "JSONRPC", "0.3")),
        (
            [interface("/f", version="2.0"), interface("/p", version="1.0.1")],
            ("/p", "JSONRPC", "1.0"),
        ),
        ([interface("/x", "HTTP+JSON", "0.3"), interface("/y")], ("/y", "JSONRPC", "1.0")),
    ],
)
def test_the_first_known_interface_of_the_card_is_called(
    offered: list[Any], expected: tuple[str, str, str]
) -> None:
    binding = binding_of(card(*offered))
    path = binding.url.removeprefix("https://agents.example.com")
    assert (path, binding.transport, binding.version) == expected


def test_a_card_of_0_3_names_its_interface_in_its_own_members() -> None:
    old = {**card(), "url": f"{HOME}/rpc", "protocolVersion": "0.3.0"}
    del old["supportedInterfaces"]
    binding = binding_of(old)
    assert (binding.url, binding.transport, binding.version) == (f"{HOME}/rpc", "JSONRPC", "0.3")


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("https://evil.example.net/a", "at another host, evil.example.net"),
        ("https://agents.example.com:8443/a", "at another host, agents.example.com:8443"),
        ("http://agents.example.com/a", "without TLS"),
        ("https://agents.example.com@evil.example/a", "without credentials"),
        ("file:///etc/passwd", "no http(s) URL"),
        ("https://agents.example.com/a?x=1", "query"),
        ("https://[x/a", "no URL"),
        ("//evil.example/a", "no http(s) URL"),
        ("", "no http(s) URL"),
        ("https://agents.example.com/a\r\nX: y", "no http(s) URL"),
        ("https://agents.example.com\t/a", "no http(s) URL"),  # which parsers drop
        ("https://agents.example.com/" + "a" * 3000, "no http(s) URL"),
    ],
)
def test_an_interface_elsewhere_is_refused(url: str, reason: str) -> None:
    with pytest.raises(ImportRejected) as refused:
        binding_of(card((url, "JSONRPC", "1.0")))
    assert reason in str(refused.value)


@pytest.mark.parametrize("allowed", ["calls.example.net", "calls.example.net:444"])
def test_an_allowed_host_may_be_called(allowed: str) -> None:
    url = f"https://{allowed}/a"
    assert binding_of(card((url, "JSONRPC", "1.0")), (allowed,)).url == url
    with pytest.raises(ImportRejected):
        binding_of(card((f"http://{allowed}/a", "JSONRPC", "1.0")), (allowed,))


def test_required_extensions_are_refused_by_name() -> None:
    extensions = [{"uri": "https://x.example/ext", "required": True}]
    with pytest.raises(ImportRejected, match=r"https://x\.example/ext"):
        binding_of(card(interface(), capabilities={"extensions": extensions}))
    optional = [{"uri": "https://x.example/ext"}]
    binding_of(card(interface(), capabilities={"extensions": optional}))


def test_the_hash_of_a_card_is_independent_of_order_and_signatures() -> None:
    document = card(interface())
    reordered = dict(reversed(document.items()))
    signed = {**document, "signatures": [{"protected": "e30", "signature": "eA"}]}
    hashes = {binding_of(each).card for each in (document, reordered, signed)}
    assert len(hashes) == 1
    assert binding_of({**document, "version": "9"}).card not in hashes


def test_tags_of_a_card_are_no_tags_of_the_tool() -> None:
    [draft] = read_card(json.dumps(card(interface())).encode(), HOME, "trips", A2aOptions()).drafts
    assert draft.tags == ()
    assert "travel" in draft.description


@pytest.mark.parametrize("document", [b"", b"[]", b"null", b"<html>", b"{}", b"[" * 5000, b"\xff"])
def test_documents_without_a_card_are_refused(document: bytes) -> None:
    with pytest.raises(ImportRejected, match="expected the card of an agent"):
        read_card(document, HOME, "trips", A2aOptions())


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
)


@given(member=st.sampled_from(sorted(card(interface()))), value=values)
def test_any_member_may_be_anything(member: str, value: Any) -> None:
    document = json.dumps({**card(interface()), member: value}).encode()
    try:
        imported = read_card(document, HOME, "trips", A2aOptions())
    except ImportRejected:
        return
    assert imported.drafts[0].name == "trips"
