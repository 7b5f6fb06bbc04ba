import pytest

from tests.properties import read_share


@pytest.mark.parametrize(
    ("text", "share"), [("", 0.125), ("0.25", 0.25), ("1", 1), ("1e-3", 0.001)]
)
def test_a_share_of_examples_is_read(text: str, share: float) -> None:
    assert read_share(text) == share


@pytest.mark.parametrize("text", ["all", "0", "-1", "2", "nan"])
def test_an_invalid_share_is_named(text: str) -> None:
    with pytest.raises(SystemExit, match=f"PROPERTY_EXAMPLES: '{text}'; expected a number"):
        read_share(text)
