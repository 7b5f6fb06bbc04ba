"""Settings from environment variables: TOOLGATE_SERVER__PORT is server.port.

Two underscores go one level down. A name that matches no setting is an error, with one exception:
Kubernetes gives every pod variables named after the services in its namespace, and a service may
well be called "toolgate".
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path

from config.document import YamlValue, expanded
from config.kinds import SettingKind, item_kind, key_kind, members
from config.problem import KeyPath, Problem, SettingsError

PREFIX = "TOOLGATE_"
NESTING = "__"
FILE_VARIABLE = "TOOLGATE_CONFIG"  # which file to read; not a setting itself


def overridden(
    tree: YamlValue, root: SettingKind, env: Mapping[str, str], problems: list[Problem]
) -> YamlValue:
    """`tree` with every variable applied; of two that overlap, the more specific one wins."""
    for name in sorted(_variables(env), key=lambda name: (name.count(NESTING), name)):
        value = YamlValue(env[name], name, Path.cwd(), env[name], True, "environment")
        parts = name[len(PREFIX) :].lower().split(NESTING)
        try:
            tree = _put(tree, root, parts, value)
        except LookupError:
            problems.append(_unknown(name, root))
        except SettingsError as error:
            problems.extend(error.problems)
    return tree


def variable(path: KeyPath) -> str:
    return PREFIX + NESTING.join(path).upper()


def _variables(env: Mapping[str, str]) -> Iterator[str]:
    services = tuple(
        name.removesuffix("_SERVICE_HOST") for name in env if name.endswith("_SERVICE_HOST")
    )
    for name in env:
        if not name.upper().startswith(PREFIX) or name.upper() == FILE_VARIABLE:
            continue
        if not any(_linked(name, service) for service in services):
            yield name


def _linked(name: str, service: str) -> bool:
    """Whether Kubernetes sets `name` for a service that it calls `service`."""
    return name == f"{service}_PORT" or name.startswith(
        (f"{service}_PORT_", f"{service}_SERVICE_HOST", f"{service}_SERVICE_PORT")
    )


def _put(tree: YamlValue, kind: SettingKind, parts: list[str], value: YamlValue) -> YamlValue:
    if not parts:
        whole = value if kind.scalar else expanded(value)
        return merged(tree, whole) if kind.section else whole
    if kind.scalar or kind.listing:
        raise LookupError(parts[0])
    if not isinstance(tree.data, dict | None):
        return tree  # the file has something else here; it is reported when that is decoded
    children: dict[str, YamlValue] = tree.data or {}
    key, below = _step(kind, parts[0], children)
    child = children.get(key, YamlValue(None, value.where, value.directory))
    return replace(tree, data={**children, key: _put(child, below, parts[1:], value)})


def _step(
    kind: SettingKind, part: str, children: Mapping[str, YamlValue]
) -> tuple[str, SettingKind]:
    """The key that `part` of a variable's name refers to. LookupError: there is none."""
    if kind.section:
        return part, members(kind)[part]
    for key in children:
        if key.lower().replace("-", "_") == part:
            return key, item_kind(kind)
    return _spelt(part, key_kind(kind)), item_kind(kind)


def _spelt(part: str, key: SettingKind) -> str:
    """Spelling of a new key (case, dashes), which the name of a variable cannot express."""
    if key.marked("dashes"):
        return part.replace("_", "-")
    return part.upper() if key.marked("capitals") else part


def merged(below: YamlValue, above: YamlValue) -> YamlValue:
    """Mappings are merged key by key; anything else replaces what was there."""
    if not isinstance(below.data, dict):
        return above
    if above.data is None:  # a section whose entries are all commented out
        return below
    if not isinstance(above.data, dict):
        return above
    both = {
        key: merged(below.data[key], value) if key in below.data else value
        for key, value in above.data.items()
    }
    return replace(above, data={**below.data, **both})


def _unknown(name: str, root: SettingKind) -> Problem:
    parts = name[len(PREFIX) :].lower().split(NESTING)
    near = get_close_matches(name.upper(), _names(root, (), parts), n=1, cutoff=0.8)
    return Problem(name, "", "there is no such setting", near[0] if near else None)


def _names(kind: SettingKind, path: KeyPath, parts: list[str]) -> Iterator[str]:
    """Names of variables; below a mapping those of the entry that `parts` name."""
    if path:
        yield variable(path)
    if kind.section:
        for name, below in members(kind).items():
            yield from _names(below, (*path, name), parts)
    elif kind.mapping and len(parts) > len(path):
        yield from _names(item_kind(kind), (*path, parts[len(path)]), parts)
