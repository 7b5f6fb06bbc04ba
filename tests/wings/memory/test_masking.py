"""Masking of what a memory must not keep (M37)."""

import string
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import to_builtins
from msgspec.structs import replace

from gateway.operations.problems import ProblemDetails
from gateway.wings.memory.masking import (
    ContentRefused,
    Mode,
    built_in,
    hook_of,
    mask_text,
    masked_json,
)
from registry.database.postgres import Database
from schemas.errors import ToolgateError
from schemas.personal_data import IBAN_LENGTHS, mask
from tests.wings.memory.rig import Rig, memory_settings, open_rig

ORG = {"scope": "org"}
IBAN = "DE89 3704 0044 0532 0130 00"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("mail ann.lee+x@mail.example.co.uk.", "mail [email]."),
        ("an@b.de;bo@c.de cy@d.de", "[email];[email] [email]"),
        ("全角 ann\uff20example.com", "全角 [email]"),
        ("jörg@müller.de", "[email]"),
        ("call +49 (0)30 901820-17 today", "call [phone] today"),
        ("0049 30 90182017", "[phone]"),
        ("(212) 555-0187 or 212.555.0187", "[phone] or [phone]"),
        ("手机13812345678。", "手机[phone]。"),
        ("138 1234 5678", "[phone]"),
        ("030/9018-2017", "[phone]"),
        ("4111 1111 1111 1111", "[card]"),
        ("card 2 4111-1111-1111-1111 12/27", "card 2 [card] 12/27"),
        ("5500000000000004 and 340000000000009", "[card] and [card]"),
        (
            "\uff14\uff11\uff11\uff11\uff11\uff11\uff11\uff11\uff11\uff11\uff11\uff11\uff11\uff11\uff11\uff11",
            "[card]",
        ),
        (f"pay to {IBAN} by Friday", "pay to [iban] by Friday"),
        (f"{IBAN.replace(' ', '').lower()}", "[iban]"),
        ("NO9386011117947", "[iban]"),
        ("sk-ant-api03-abcdefghijklmnop_QRST", "[key]"),
        ("ghp_abcdefghijklmnopqrstuvwxyz0123456789", "[key]"),
        ("AKIAIOSFODNN7EXAMPLE", "[key]"),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc-_1", "[key]"),
        ("password: hunter2, please", "password: [key], please"),
        ("my password is hunter2", "my password is [key]"),
        ('{"api_key": "0123456789"}', '{"api_key": "[key]"}'),
        ("Authorization: Bearer abcdef.ghij", "Authorization: Bearer [key]"),
        ("密码是\uff1ahunter22。", "密码是\uff1a[key]。"),
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIE+x/y=\n-----END RSA PRIVATE KEY-----!", "[key]!"),
    ],
)
def test_personal_data_and_secrets_are_masked(text: str, expected: str) -> None:
    """Personal data and secrets are masked (M37)."""
    assert mask(text)[0] == expected
    assert mask(expected) == (expected, ())


@pytest.mark.parametrize(
    "text",
    [
        "met on 2023-05-07 at 14:30:15.123456",
        "8 May 2023 to 2024",
        "order 4111111111111112",  # no Luhn digit
        "NO9386011117948",  # wrong check digits
        "ZZ9386011117947",  # no country
        "1,234,567.89 and 192.168.100.200",
        "version 1.2.3-4, ISBN 978-3-16-148410-0",
        "550e8400-e29b-41d4-a716-446655440000",
        "the password is required",
        "a token of thanks",
        "@ann at home",
        "我喜欢2023年5月8日",
        "",
    ],
)
def test_other_texts_stay(text: str) -> None:
    assert mask(text) == (text, ())


def test_kinds_are_named_once_each() -> None:
    text, kinds = mask("a@b.de, c@d.de, token=abcdefgh, sk-0123456789abcdefgh")
    assert kinds == ("key", "email")
    assert text == "[email], [email], token=[key], [key]"


def test_a_scope_stores_masks_or_refuses() -> None:
    """A scope stores masks or refuses (M37)."""
    text = "ann@example.com"
    assert mask_text("off", built_in, text, ORG) == (text, [])
    assert mask_text("mask", built_in, text, ORG) == ("[email]", ["email"])
    with pytest.raises(ContentRefused, match="contains email, which the scope org") as refused:
        mask_text("refuse", built_in, text, ORG)
    assert "ann" not in str(refused.value)
    assert mask_text("refuse", built_in, "Ann", ORG) == ("Ann", [])


def test_json_is_masked_inside() -> None:
    value = {"a@b.de": [1, True, None, 4111111111111111, {"x": "13812345678"}], "n": 2.5}
    found, kinds = masked_json("mask", built_in, value, ORG)
    assert found == {"[email]": [1, True, None, "[card]", {"x": "[phone]"}], "n": 2.5}
    assert kinds == ["email", "card", "phone"]
    with pytest.raises(ContentRefused):
        masked_json("refuse", built_in, value, ORG)


@pytest.mark.parametrize("mode", ["mask", "refuse"])
def test_a_hook_decides_instead(mode: Mode) -> None:
    def hook(text: str, facts: object) -> tuple[str, tuple[str, ...]]:
        return (text.replace("Rex", "[dog]"), ("dog",)) if "Rex" in text else (text, ())

    assert mask_text(mode, hook, "ann@example.com", ORG) == ("ann@example.com", [])
    if mode == "mask":
        assert mask_text(mode, hook, "Rex barks", ORG) == ("[dog] barks", ["dog"])


def dogs(text: str, facts: Mapping[str, Any]) -> tuple[str, list[str]]:
    """A hook as operators write it."""
    found = facts["scope"] == "user" and "Rex" in text
    return (text.replace("Rex", "[dog]"), ["dog"]) if found else (text, [])


def keep_text(text: str, _facts: object) -> str:
    return text


@pytest.mark.anyio
async def test_a_masking_hook_runs_after_the_built_in_rules(
    database: Database,
) -> None:
    """A masking hook runs after the built in rules (M37)."""
    masking = {"user": "mask", "hook": f"{__name__}:dogs"}
    async with open_rig(database, memory_settings(masking=masking)) as rig:
        ann = rig.caller("ann")
        added = await ann("add", scope="user", content="Rex has the chip ann@example.com")
        assert added.items[0].masked == ("email", "dog")
        assert await ann.find_contents("chip") == ["[dog] has the chip [email]"]


@pytest.mark.anyio
async def test_a_failing_masking_hook_stores_nothing(database: Database) -> None:
    """A failing masking hook stores nothing (M37)."""
    masking = {"user": "mask", "hook": f"{__name__}:keep_text"}
    async with open_rig(database, memory_settings(masking=masking)) as rig:
        with pytest.raises(ProblemDetails) as caught:
            await rig.caller("ann").add("Rex barks")
        assert (caught.value.status, "Rex" in caught.value.detail) == (503, False)
        assert await rig.rows("SELECT FROM memory_t") == []


def test_a_missing_masking_hook_is_named() -> None:
    """A missing masking hook is named (M37)."""
    with pytest.raises(ToolgateError, match=r"memory.masking.hook: the module .* no function cats"):
        hook_of(f"{__name__}:cats")


WORDS = st.text(string.ascii_letters + " ,.;é中", max_size=40)
DIGITS = st.lists(st.integers(0, 9), min_size=11, max_size=17)


def card(digits: list[int]) -> str:
    digits = [4, *digits]
    odd = sum(digits[-2::-2])
    even = sum(2 * one - 9 * (one > 4) for one in digits[-1::-2])
    return "".join(map(str, [*digits, -(odd + even) % 10]))


def iban(country: str, fill: int) -> str:
    body = str(fill).zfill(40)[-(IBAN_LENGTHS[country] - 4) :]
    number = int("".join(str(int(one, 36)) for one in f"{body}{country}00"))
    return f"{country}{98 - number % 97:02}{body}"


@given(WORDS, DIGITS, WORDS)
def test_every_valid_card_is_found_among_words(before: str, digits: list[int], after: str) -> None:
    number = card(digits)
    grouped = " ".join(number[at : at + 4] for at in range(0, len(number), 4))
    for shown in (number, grouped, grouped.replace(" ", "-")):
        text, _ = mask(f"{before} {shown} {after}")
        assert number[-8:] not in text.replace(" ", "").replace("-", "")


@given(st.sampled_from(sorted(IBAN_LENGTHS)), st.integers(0, 10**30), WORDS)
def test_every_valid_iban_is_found_before_words(country: str, fill: int, after: str) -> None:
    number = iban(country, fill)
    grouped = " ".join(number[at : at + 4] for at in range(0, len(number), 4))
    for shown in (number, grouped):
        assert "iban" in mask(f"to {shown} {after}")[1]


@given(st.text(max_size=200))
def test_masking_is_idempotent(text: str) -> None:
    once, kinds = mask(text)
    assert mask(once)[0] == once
    assert bool(kinds) == (once != text)


@pytest.mark.parametrize(
    "unit", ["4", "4 ", "a@", "a.", "DE8", "+1 ", "sk-", "token:", "-----BEGIN "]
)
def test_masking_takes_linear_time(unit: str) -> None:
    """Masking takes linear time (M37)."""
    text = unit * (65536 // len(unit))
    mask(text)  # ends within the timeout of the test; RE2 does not backtrack


@pytest.fixture
async def masking(database: Database) -> AsyncIterator[Rig]:
    modes = replace(memory_settings().masking, user="mask")
    settings = memory_settings(masking=modes, compat=("graph", "files"))
    async with open_rig(database, settings) as rig:
        yield rig


MAIL = "ann@example.com"


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("add", {"scope": "user", "content": "a", "slot": f"of {MAIL}"}),
        ("graph_create_entities",
         {"entities": [{"name": MAIL, "entityType": "a", "observations": []}]}),
        ("graph_create_relations", {"relations": [{"from": MAIL, "to": "a", "relationType": "b"}]}),
        ("graph_create_relations", {"relations": [{"from": "a", "to": "a", "relationType": MAIL}]}),
        ("files", {"command": "create", "path": f"/memories/{MAIL}", "file_text": "a"}),
    ],
)  # fmt: skip
async def test_names_with_personal_data_are_refused(
    masking: Rig, name: str, given: dict[str, Any]
) -> None:
    """Names with personal data are refused (M37)."""
    with pytest.raises(ProblemDetails, match="contains email"):
        await masking.caller()(name, **given)
    assert await masking.rows("SELECT FROM memory_t") == []


@pytest.mark.anyio
async def test_imports_are_masked_like_additions(masking: Rig) -> None:
    """Imports are masked like additions (M37)."""
    ann = masking.caller()
    source = {"session": f"with {MAIL}"}
    await ann.add("Likes tea", valid_from="2024-05-08T00:00:00Z", source=source)
    [line] = to_builtins((await ann("export")).items)
    assert line["session"] == "with [email]"
    await ann("forget", subject="ann")
    later = {"created": "2999-01-01T00:00:00Z", "dated": MAIL}
    await ann("import", items=[line | later])
    [again] = (await ann("export")).items
    assert (again.dated, MAIL in str(again)) == (line["dated"], False)
    for member in ("slot", "session"):
        with pytest.raises(ProblemDetails, match=f"{member}: contains email"):
            await ann("import", items=[line | {member: MAIL}])
