import pytest

from gateway.protocol.cursors import seal, unseal
from schemas.errors import InvalidParams


@pytest.mark.parametrize("name", ["a", "getPet", "x" * 64, "naïve", "a/b c", "日本"])
def test_a_cursor_is_decoded_to_its_name(name):
    cursor = seal(name, "tools")
    assert unseal(cursor, "tools") == name
    assert cursor.isascii()
    assert "=" not in cursor  # may stand in a URL


def test_no_cursor_is_the_beginning():
    assert unseal(None, "tools") is None


@pytest.mark.parametrize(
    "cursor",
    [
        "",
        "!",
        "a",
        "é",
        "\ud800",
        "Z2V0UGV0=",  # padded: not what we gave
        "Z2V0UGV1\n",
        " Z2V0UGV0",
        "Z2V0UG+0/",  # the other alphabet
        "Z2V0UGV_Zm9v-w",  # no UTF-8
        "YR",  # not canonical: YQ is
    ],
)
def test_any_other_text_is_refused(cursor):
    with pytest.raises(InvalidParams, match="Invalid cursor"):
        unseal(cursor, "tools")


@pytest.mark.parametrize("cursor", [seal("a", "prompts"), "YQ", seal("a", "tools")[:-1]])
def test_a_cursor_of_another_list_is_refused(cursor):
    """A cursor names its list, and a name alone is none (mending 22)."""
    with pytest.raises(InvalidParams, match="of this list of tools"):
        unseal(cursor, "tools")
