"""Patterns of names: which they pick, whatever the case of letters."""

import pytest

from schemas.globs import Globs, ToolGlobs


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        ("*refund*", "PostRefunds"),
        ("POST*", "postRefunds"),
        ("post[a-z]efunds", "PostRefunds"),
        ("[A-z]x", "_x"),
        ("stra\u00dfe*", "STRASSEN"),
        ("*strasse", "Hauptstra\u00dfe"),
        ("\u03a3*", "\u03c3"),
        ("*fi*", "re\ufb01nd"),
        ("k", "\u212a"),
    ],
)
def test_the_case_of_letters_does_not_matter(pattern: str, name: str) -> None:
    assert Globs([pattern]).match(name)


@pytest.mark.parametrize(("pattern", "name"), [("refund", "Refunds"), ("[!P]*", "post"), ("", "a")])
def test_all_else_does(pattern: str, name: str) -> None:
    assert not Globs([pattern]).match(name)


def test_no_pattern_picks_nothing() -> None:
    assert not Globs(())
    assert not Globs(()).match("")
    assert not ToolGlobs(()).match(["a"], ["a"], "a")


def test_tools_are_picked_by_names_tags_and_domains() -> None:
    globs = ToolGlobs(["get*", "tag:Billing", "Domain:sales/*"])
    assert globs.match(["GetPet"])
    assert globs.match(["a", "get_b"])
    assert globs.match(["a"], ["x", "billing"])
    assert globs.match(["a"], (), "Sales/EU")
    assert not globs.match(["billing"], ["get"], "sales")
    assert not ToolGlobs(["domain:*"]).match(["a"])
