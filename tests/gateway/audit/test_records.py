"""The text of a record, and the hash that is over it."""

import hashlib
import hmac
import json
from datetime import UTC, datetime
from uuid import UUID

import pytest

from gateway.audit.records import (
    AuditEntry,
    Chain,
    Head,
    argument_digest,
    canonical,
    entry_of,
    link_hash,
    seal,
    storable_text,
    with_hash,
)
from tests.gateway.audit.conftest import NOON, entry

KEY = b"0123456789abcdef"
ID = "00000000-0000-0000-0000-00000000000a"


def test_a_record_is_a_json_object_without_unknown_members():
    assert json.loads(canonical(ID, 7, entry(3))) == {
        "chain_id": ID,
        "sequence": 7,
        "host_id": "00000000-0000-0000-0000-000000000001",
        "recorded_ts": "2026-11-18T12:00:00.000003Z",
        "principal": "ada",
        "method": "tools/call",
        "subject": "tool_3",
        "outcome": "ok",
        "latency_us": 3,
        "request_id": "r-3",
    }


@pytest.mark.parametrize("key", [b"", KEY], ids=["plain", "keyed"])
def test_anybody_can_work_out_the_hashes_of_an_exported_chain(key):
    chain = Chain(entry().host_id, node="node", started=NOON, key=key, seen=[Head(ID, 4, "ab")])
    lines = chain.link([entry(1), entry(2)])

    def digest(text):
        return (hmac.digest(key, text, "sha256") if key else hashlib.sha256(text).digest()).hex()

    before = digest(chain.header)
    for line in lines:
        exported = with_hash(line)
        text, _, _ = exported.rpartition(b',"hash":')
        expected = digest(bytes.fromhex(before) + text + b"}")
        assert json.loads(exported)["hash"] == expected
        before = expected


def test_chains_continue_from_their_last_link():
    lines = (chain := Chain("h", node="n", started=NOON, key=b"")).link([entry(1)]) + chain.link(
        [entry(2)]
    )
    assert [line.sequence for line in lines] == [1, 2]
    assert lines[1].hash == link_hash(b"", lines[0].hash, lines[1].text)


def test_a_row_of_the_database_gives_back_its_entry():
    written = entry(5, decision="deny", rule="r", recorded_ts=datetime(2026, 1, 2, 3, tzinfo=UTC))
    row = dict.fromkeys(AuditEntry.__struct_fields__)
    row |= {name: getattr(written, name) or None for name in AuditEntry.__struct_fields__}
    row |= {"host_id": UUID(written.host_id)}
    assert entry_of(row) == written


@pytest.mark.parametrize(
    "change",
    [{"last": (2, b"a")}, {"last": (1, b"b")}, {"removed": (1, b"")}, {"chain_id": "d"}],
    ids=str,
)
def test_a_seal_is_over_all_that_a_chain_says_of_its_ends(change):
    said = {"chain_id": "c", "last": (1, b"a"), "removed": (0, b"")}
    assert seal(KEY, **said) != seal(KEY, **{**said, **change})
    assert seal(KEY, **said) != seal(b"", **said)


def test_digests_of_arguments_cannot_be_guessed_where_there_is_a_key():
    assert argument_digest(b"", b"{}") == hashlib.sha256(b"{}").hexdigest()
    assert argument_digest(KEY, b"{}") == hmac.digest(KEY, b"{}", "sha256").hex()


@pytest.mark.parametrize(
    ("text", "kept"),
    [("a\0b", "a\N{REPLACEMENT CHARACTER}b"), ("abcd", "abcd"), ("abcdef", "abcde")],
)
def test_names_that_clients_choose_are_cut_and_fit_into_the_database(text, kept):
    assert storable_text(text, 5) == kept
