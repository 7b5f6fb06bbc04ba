"""Static files: vendored ones are as they were published, and small."""

import gzip
import hashlib
from importlib.resources import files

import pytest

STATIC = files("gateway.console").joinpath("static")
VENDORED = {  # as in THIRD_PARTY.md
    "htmx.js": "a0abb04f2f45a1f89d1d4844023245537e5e6014c87b144553e0607b4cc32130",
    "uplot.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
    "uplot.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
}


@pytest.mark.parametrize("name", sorted(VENDORED))
def test_vendored_files_match_the_published_digests(name: str) -> None:
    digest = hashlib.sha256(STATIC.joinpath(name).read_bytes()).hexdigest()
    assert digest == VENDORED[name]
    assert digest in files("gateway.console").joinpath("THIRD_PARTY.md").read_text()


def test_the_scripts_are_small() -> None:
    scripts = [one.read_bytes() for one in STATIC.iterdir() if one.name.endswith(".js")]
    assert sum(len(gzip.compress(one)) for one in scripts) <= 60_000
    whole = [one.read_bytes() for one in STATIC.iterdir()]
    assert sum(len(gzip.compress(one)) for one in whole) <= 100_000
