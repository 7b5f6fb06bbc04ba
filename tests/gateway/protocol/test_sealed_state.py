"""What clients carry for us cannot be read, changed, kept or lent."""

import base64

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Struct

from gateway.protocol.sealed_state import Sealer
from schemas.errors import InvalidParams

SECRET = b"s" * 32


class Call(Struct, frozen=True):
    id: str
    round: int = 0


class Other(Struct, frozen=True):
    name: str


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def seal_payload(payload=Call("c-1", 2), bound_to=b"me", ttl_s=60.0, secret=SECRET):  # noqa: B008
    return Sealer(secret).seal("park", payload, bound_to, ttl_s)


def unseal_text(text, purpose="park", bound_to=b"me", secret=SECRET, as_type=Call):
    return Sealer(secret).unseal(purpose, text, as_type, bound_to)


@given(st.builds(Call, st.text(st.characters(exclude_categories=["Cs"])), st.integers(0, 2**60)))
def test_sealed_values_are_opened_on_any_node(payload):
    text = seal_payload(payload)
    assert unseal_text(text) == payload
    assert text.isascii()
    assert not set(text) & set("+/= ")  # may stand in a URL, and needs no escapes in JSON


def test_sealed_values_are_unreadable_and_never_repeat():
    first, second = seal_payload(Call("visible")), seal_payload(Call("visible"))
    assert first != second
    assert b"visible" not in base64.urlsafe_b64decode(first + "==")


@settings(deadline=None)  # a loaded machine is slow, not wrong
@given(st.data())
def test_any_changed_character_is_refused(data):
    text = seal_payload()
    at = data.draw(st.integers(0, len(text) - 1))
    other = data.draw(st.sampled_from("ABCabc019-_=+/ \n\u00e9\ud800"))
    with pytest.raises(InvalidParams, match="not ours, was changed or is too old"):
        unseal_text(text[:at] + (other if other != text[at] else "~") + text[at + 1 :])


@pytest.mark.parametrize("id_", ["c", "cc", "ccc"])
def test_no_two_texts_say_the_same(id_):
    """Of the last character some bits are not used: they must be as we wrote them."""
    text = seal_payload(Call(id_))
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    for other in set(alphabet) - {text[-1]}:
        with pytest.raises(InvalidParams):
            unseal_text(text[:-1] + other)


@given(st.data())
def test_any_changed_byte_is_refused(data):
    raw = bytearray(base64.urlsafe_b64decode(seal_payload() + "=="))
    raw[data.draw(st.integers(0, len(raw) - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(InvalidParams):
        unseal_text(base64.urlsafe_b64encode(bytes(raw)).decode().rstrip("="))


@given(st.text() | st.text("ABCabc019-_", max_size=200))
def test_foreign_texts_are_refused(text):
    with pytest.raises(InvalidParams):
        unseal_text(text)


@pytest.mark.parametrize("change", [lambda t: t + "-TAMPERED", lambda t: t[:-1], lambda t: t + "A"])
def test_lengthened_and_shortened_texts_are_refused(change):
    with pytest.raises(InvalidParams):
        unseal_text(change(seal_payload()))


@pytest.mark.parametrize(
    "wrong",
    [
        {"purpose": "task"},
        {"bound_to": b"somebody else"},
        {"bound_to": b""},
        {"secret": b"t" * 32},
        {"as_type": Other},  # sealed by a release that meant something else by it
    ],
)
def test_sealed_values_are_bound_to_purpose_owner_secret_and_type(wrong):
    text = seal_payload()
    with pytest.raises(InvalidParams):
        unseal_text(text, **wrong)
    assert unseal_text(text) == Call("c-1", 2)


def test_sealed_values_expire():
    clock = Clock()
    sealer = Sealer(SECRET, clock)
    text = sealer.seal("park", Call("c"), b"", 60)
    clock.now += 59
    assert sealer.unseal("park", text, Call, b"") == Call("c")
    clock.now += 1
    with pytest.raises(InvalidParams):
        sealer.unseal("park", text, Call, b"")


def test_all_refusals_are_alike():
    late = seal_payload(ttl_s=-1)
    refusals = set()
    for text in (
        "",
        "x",
        late,
        seal_payload()[:-4],
        seal_payload(bound_to=b"other"),
        seal_payload(Other("x")),
    ):
        with pytest.raises(InvalidParams) as caught:
            unseal_text(text)
        refusals.add((caught.value.code, caught.value.message, str(caught.value.data)))
    assert len(refusals) == 1
