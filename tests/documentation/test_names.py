"""Commands, options and settings that the pages name exist."""

import re
import shlex
from collections.abc import Iterator, Sequence

import click
import pytest

from config.access import RULE_VARIABLES
from config.decode import SettingKind, item_kind, kind_of, members
from config.load import NESTING, PREFIX
from config.settings import Settings
from gateway.cli.common.lazy import LazyGroup
from gateway.cli.main import cli
from gateway.cli.wings import WingGroup
from tests.documentation.pages import ROOT, Page, pages

COMMAND = re.compile(r"^(?:[A-Z_]+=\S+ )*(?:\S*/)?toolgate (?=[a-z])(.*)$")
DOTTED = re.compile(r"^([a-z_]+(?:\.(?:[a-z_]+|NAME))+)(?:$|: )")
VARIABLE = re.compile(r"\bTOOLGATE_[A-Z_]+")
FILES = re.compile(r"\.(py|js|yaml|json|md|sh|sql|toml|txt|onnx)$")
PACKAGES = ("gateway.", "registry.", "schemas.", "config.", "tests.", "benchmarks.")
NO_SETTING_PREFIXES = (*PACKAGES, *(f"{variable}." for variable in RULE_VARIABLES))
NO_SETTINGS = {
    "citus.allow_nested_distributed_execution": "a parameter of Citus",
    "citus.enable_unsafe_triggers": "a parameter of Citus",
    "hnsw.ef_search": "a parameter of pgvector",
    "rpc.discover": "a method of OpenRPC",
    "toolgate.hooks": "a group of entry points",
}
NO_SETTING_VARIABLES = {
    "TOOLGATE_CONFIG": "names the settings file",
}


GUIDES = [page for page in pages() if not page.name.startswith("docs/decisions/")]
"""Decisions name what was proposed, and is perhaps not made yet."""


def command_lines(page: Page) -> Iterator[str]:
    """What follows `toolgate` in code, in sentences and blocks."""
    for code in (*page.spans(), *page.lines_of_shell()):
        if found := COMMAND.match(code.strip()):
            yield found[1].partition("  #")[0]


def mistake(line: str) -> str | None:
    """What is wrong with a command line: a command or an option that does not exist."""
    command: click.Command = cli
    words = shlex.split(line)
    while words and isinstance(command, click.Group):
        below = child(command, words[0])
        if below is None:
            return None if words[0].startswith("-") else f"no command {words[0]!r}"
        command, words = below, words[1:]
    known = {name for option in (*cli.params, *command.params) for name in option.opts}
    known |= {"--help", "-h"} | {name for one in command.params for name in one.secondary_opts}
    return next((f"no option {one!r}" for one in options(words) if one not in known), None)


def child(group: click.Group, name: str) -> click.Command | None:
    if isinstance(group, WingGroup):  # operations are looked up in the running gateway
        return group.resolve_command(click.Context(group), [name])[1]
    if isinstance(group, LazyGroup):
        return group.load(name) if name in group.list_commands(click.Context(group)) else None
    return group.commands.get(name)


def options(words: Sequence[str]) -> Iterator[str]:
    return (word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word))


def dotted_names(page: Page) -> Iterator[str]:
    for code in page.spans():
        found = DOTTED.match(code)
        if found and not FILES.search(found[1]) and not found[1].startswith(NO_SETTING_PREFIXES):
            yield found[1]


def is_setting(path: Sequence[str]) -> bool:
    """Whether a path of keys leads to a setting; below a mapping any name is a key."""
    kind: SettingKind = kind_of(Settings)
    for part in path:
        if kind.scalar or kind.listing:
            return False
        if kind.section and part not in members(kind):
            return False
        kind = members(kind)[part] if kind.section else item_kind(kind)
    return True


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.name)
def test_commands_and_their_options_exist(page: Page) -> None:
    wrong = {line: said for line in command_lines(page) if (said := mistake(line))}
    assert wrong == {}


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.name)
def test_settings_exist(page: Page) -> None:
    names = {name for name in dotted_names(page) if name not in NO_SETTINGS}
    assert [name for name in sorted(names) if not is_setting(name.split("."))] == []


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.name)
def test_environment_variables_are_settings(page: Page) -> None:
    names = {name for name in VARIABLE.findall(page.text) if name not in NO_SETTING_VARIABLES}
    paths = {name: name.removeprefix(PREFIX).lower().split(NESTING) for name in names}
    assert [name for name, path in sorted(paths.items()) if not is_setting(path)] == []


def test_exceptions_are_needed() -> None:
    """Or a setting that is misspelt later would hide behind one."""
    text = "".join(page.text for page in pages())
    assert [name for name in (*NO_SETTINGS, *NO_SETTING_VARIABLES) if name not in text] == []


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("tools list --profile gemini", None),
        ("serve --host 0.0.0.0", None),
        ("tools lst", "no command 'lst'"),
        ("severe", "no command 'severe'"),
        ("tools list --proffle gemini", "no option '--proffle'"),
    ],
)
def test_a_wrong_command_line_is_found(line: str, said: str | None) -> None:
    assert mistake(line) == said


def test_a_wrong_setting_is_found() -> None:
    assert is_setting(["toolsets", "NAME", "mode"])
    assert not is_setting(["disclosure", "mod"])
    assert not is_setting(["disclosure", "mode", "more"])


def rows(command: click.Command, path: str) -> Iterator[str]:
    if not isinstance(command, LazyGroup) or command.invoke_without_command:
        summary = command.get_short_help_str(200).replace("|", "\\|")
        yield f"| `{path}` | {summary} |"
    if isinstance(command, LazyGroup):
        for name in command.list_commands(click.Context(command)):
            yield from rows(command.load(name), f"{path} {name}")


def test_the_chapter_on_the_command_line_has_every_command() -> None:
    """With the first sentence of its help. To renew: paste what is missing."""
    lines = (ROOT / "docs" / "cli.md").read_text().splitlines()
    table = [line for line in lines if line.startswith(("| `toolgate ", "| `toolgate` "))]
    assert table == list(rows(cli, "toolgate"))
