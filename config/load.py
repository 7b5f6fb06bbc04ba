"""Reads the settings: defaults.yaml, then one file, then the environment; later ones override."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import convert, to_builtins

from config.conflicts import conflicts
from config.decode import SECRET, WITH_PASSWORDS, decode, without_credentials
from config.document import YamlDocument, YamlValue
from config.environment import FILE_VARIABLE, merged, overridden
from config.kinds import kind_of
from config.problem import KeyPath, Problem, SettingsError
from config.settings import Settings

DEFAULTS = Path(__file__).with_name("defaults.yaml")
USUAL_NAME = "toolgate.yaml"
MASK = "***"
# The username too: some services take an API key there.
CONFIDENTIAL = ("value", "username", "password", "token", "client_secret")
# Up to the last "@": an unescaped one in a password must not end the mask.
URL_PASSWORD = re.compile(r"(?<=://)([^:@/?]*):.*@")
URL_PASSWORD_PARAMETER = re.compile(r"((?:^|[?&])(?:ssl)?password=)[^&]*", re.IGNORECASE)


def load(path: str | None, env: Mapping[str, str]) -> Settings:
    """The settings in effect. Raises SettingsError with all problems.

    `path` None: the file that $TOOLGATE_CONFIG names, else ./toolgate.yaml if it exists.
    """
    problems: list[Problem] = []
    tree = _read(DEFAULTS, DEFAULTS.name, None, problems)
    file = settings_file(path, env)
    if file is not None:
        tree = merged(tree, _root(_read(file, str(file), env, problems)))
    root = kind_of(Settings)
    tree = overridden(tree, root, env, problems)
    data = decode(tree, root, (), problems)
    if problems:
        raise SettingsError(*problems)
    settings = convert(data, Settings)
    problems = conflicts(settings, lambda *paths: _where(tree, *paths))
    if problems:
        raise SettingsError(*problems)
    return settings


def settings_file(path: str | None, env: Mapping[str, str]) -> Path | None:
    """The file that `load` reads, None when there is none to read."""
    named = path or env.get(FILE_VARIABLE)
    if named:
        return Path(named)
    usual = Path(USUAL_NAME)
    return usual if usual.exists() else None


def masked(settings: Settings) -> dict[str, Any]:
    """The settings as plain data with secrets masked, for display."""
    plain: dict[str, Any] = to_builtins(settings)
    for group, key in WITH_PASSWORDS:
        plain[group][key] = _without_password(plain[group][key])
    for group, key in SECRET:
        plain[group][key] = plain[group][key] and MASK
    plain["secrets"]["old_keys"] = [MASK] * len(settings.secrets.old_keys)
    for source in plain["sources"].values():
        # All of them: any header may carry the service's key.
        source["headers"] = dict.fromkeys(source["headers"], MASK)
        source["env"] = dict.fromkeys(source["env"], MASK)
        for credential in (*source["credentials"].values(), source["exchange"] or {}):
            credential.update({key: MASK for key in CONFIDENTIAL if credential.get(key)})
        for key in ("openapi", "graphql", "hybrid", "overlay"):
            source[key] = source[key] and without_credentials(source[key])
    return plain


def _without_password(url: str) -> str:
    """A database URL with only its password masked."""
    return URL_PASSWORD_PARAMETER.sub(rf"\1{MASK}", URL_PASSWORD.sub(rf"\1:{MASK}@", url))


def _read(
    file: Path, name: str, env: Mapping[str, str] | None, problems: list[Problem]
) -> YamlValue:
    document = YamlDocument(name, file.parent.absolute(), env)
    try:
        text = file.read_bytes()
    except OSError as error:
        reason = (error.strerror or "cannot be read").lower()
        raise SettingsError(Problem(name, "", f"the settings file: {reason}")) from error
    value = document.read(text)
    problems.extend(document.problems)
    return value


def _root(value: YamlValue) -> YamlValue:
    if value.data is not None and not isinstance(value.data, dict):
        text = "expected a mapping such as `server: {port: 8765}` as the whole file"
        raise SettingsError(Problem(value.where, "", text))
    return value


def _where(tree: YamlValue, *paths: KeyPath) -> str:
    """Source location of the first of these settings that is not at its default."""
    places = [_at(tree, path).where for path in paths]
    return next((place for place in places if not place.startswith(DEFAULTS.name)), places[0])


def _at(tree: YamlValue, path: KeyPath) -> YamlValue:
    for key in path:
        tree = tree.data[key]
    return tree


__all__ = ["SettingsError", "load", "masked", "settings_file"]
