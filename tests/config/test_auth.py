"""Settings of `auth`: what goes together, and where key files are."""

from pathlib import Path

import pytest

from config.load import SettingsError, load


def problem(folder: Path, text: str) -> str:
    """The one thing that is wrong with a settings file."""
    file = folder / "toolgate.yaml"
    file.write_text(text)
    with pytest.raises(SettingsError) as caught:
        load(str(file), {})
    (found,) = caught.value.problems
    return str(found).removeprefix(f"{file}:")


def test_nobody_has_to_say_who_they_are_unless_it_is_set() -> None:
    auth = load(None, {}).auth
    assert (auth.mode, auth.key_file, auth.jwks_file) == ("none", "", "")


@pytest.mark.parametrize("setting", ["key_file", "jwks_file"])
def test_a_key_file_is_relative_to_the_file_that_names_it(tmp_path: Path, setting: str) -> None:
    file = tmp_path / "toolgate.yaml"
    file.write_text(f"auth: {{mode: jwt, {setting}: keys/a}}")
    assert getattr(load(str(file), {}).auth, setting) == str(tmp_path / "keys" / "a")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("auth:\n  mode: jwt", "neither"),
        ("auth:\n  {mode: jwt, key_file: a, jwks_file: b}", "both"),
    ],
)
def test_tokens_are_verified_with_one_kind_of_file(tmp_path: Path, text: str, found: str) -> None:
    expected = "expected auth.key_file or auth.jwks_file with it"
    assert problem(tmp_path, text) == f"2: auth.mode: {expected}, found {found}"


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("mode", "jvt", 'one of none, jwt, found "jvt"'),
        ("leeway_s", "-1", "a number of seconds from 0 to 600, found -1"),
        ("leeway_s", "601", "a number of seconds from 0 to 600, found 601"),
        ("cached_tokens", "0", "a whole number of at least 1, found 0"),
        ("token_limit_bytes", "0", "a whole number of bytes, at least 1, found 0"),
    ],
)
def test_a_mistake_is_told_with_what_was_expected(
    tmp_path: Path, key: str, value: str, expected: str
) -> None:
    assert problem(tmp_path, f"auth: {{{key}: {value}}}") == f"1: auth.{key}: expected {expected}"


@pytest.mark.parametrize("algorithm", ["HS256", "none", "RS1"])
def test_only_signatures_by_a_private_key_can_be_accepted(tmp_path: Path, algorithm: str) -> None:
    found = problem(tmp_path, f"auth: {{algorithms: [RS256, {algorithm}]}}")
    assert found.startswith("1: auth.algorithms.1: expected one of RS256, ")
    assert found.endswith(f'found "{algorithm}"')


def test_keys_that_nobody_uses_do_no_harm(tmp_path: Path) -> None:
    file = tmp_path / "toolgate.yaml"
    file.write_text("auth: {key_file: a, jwks_file: b}")
    assert load(str(file), {}).auth.mode == "none"
