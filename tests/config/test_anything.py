"""Whatever a file or the environment holds: settings, or a SettingsError."""

from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis
from hypothesis import strategies as st

from config.load import DEFAULTS, SettingsError, load, mask_secrets
from config.yaml_document import Loader
from tests.properties import examples

SECTIONS = yaml.load(DEFAULTS.read_bytes(), Loader=Loader)
KEYS = [
    *(key for section in SECTIONS.values() for key in section),
    *SECTIONS,
    *("petshop", "headers", "openapi", "base_url"),
]
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.dates(),
    st.binary(max_size=4),
    st.text(max_size=8),
    st.sampled_from(["${A}", "${B:-1}", "${B}", "$$", "${", "~nobody"]),
)
TREES = st.recursive(
    SCALARS,
    lambda below: st.one_of(
        st.lists(below, max_size=3),
        st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=4), below, max_size=4),
    ),
    max_leaves=12,
)
NOISE = st.text(alphabet="ab:{}[]-,'\"\n &*!|>%@`#$é\t?01.~<", max_size=30)
NAMES = [
    *(f"TOOLGATE_{key.upper()}" for key in KEYS),
    *(f"TOOLGATE_SOURCES__A__{key.upper()}" for key in KEYS),
    *("TOOLGATE_SERVER__PORT", "TOOLGATE_SOURCES____A", "TOOLGATE___", "TOOLGATE_SERVER__PORT__X"),
]
quick = hypothesis(
    max_examples=examples(150),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def attempt(directory: Path, text: bytes, env: dict[str, str]) -> None:
    file = directory / "settings.yaml"
    file.write_bytes(text)
    with suppress(SettingsError):
        mask_secrets(load(str(file), env))


@quick
@given(tree=st.dictionaries(st.sampled_from(KEYS), TREES, max_size=4))
def test_any_tree(tmp_path: Path, tree: dict[str, Any]) -> None:
    attempt(tmp_path, yaml.safe_dump(tree).encode(), {"A": "x"})


@quick
@given(text=NOISE.map(str.encode) | st.binary(max_size=30))
def test_any_text(tmp_path: Path, text: bytes) -> None:
    attempt(tmp_path, text, {})


@quick
@given(env=st.dictionaries(st.sampled_from(NAMES), NOISE, max_size=4))
def test_any_variable(tmp_path: Path, env: dict[str, str]) -> None:
    attempt(tmp_path, b"", env)
