"""Reads the settings: defaults.yaml, then one file, then the environment; later ones override.

An environment variable TOOLGATE_SERVER__PORT is the setting server.port; two underscores go one
level down. A name that matches no setting is an error, with one exception: Kubernetes gives every
pod variables named after the services in its namespace, and a service may well be called
"toolgate".
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from msgspec import convert, structs, to_builtins

from config.conflicts import conflicts
from config.decode import (
    SECRET,
    WITH_KEYS,
    WITH_PASSWORDS,
    SettingKind,
    decode,
    decode_settings,
    item_kind,
    key_kind,
    kind_of,
    members,
)
from config.models import Strategy
from config.presets import complete_connect
from config.settings import EmbeddingSettings, PurposeModel, Settings
from config.yaml_document import (
    KeyPath,
    Problem,
    SettingsError,
    YamlDocument,
    YamlValue,
    dotted_path,
    expand_text,
)
from schemas.urls import without_credentials

PREFIX = "TOOLGATE_"
NESTING = "__"
FILE_VARIABLE = "TOOLGATE_CONFIG"  # which file to read; not a setting itself

DEFAULT_FILE = "toolgate.yaml"
MASK = "***"
# The username too: some services take an API key there.
CONFIDENTIAL = ("value", "username", "password", "token", "client_secret")
# Up to the last "@": an unescaped one in a password must not end the mask.
URL_PASSWORD = re.compile(r"(?<=://)([^:@/?]*):.*@")
URL_PASSWORD_PARAMETER = re.compile(r"((?:^|[?&])(?:ssl)?password=)[^&]*", re.IGNORECASE)


def overridden(
    tree: YamlValue, root: SettingKind, env: Mapping[str, str], problems: list[Problem]
) -> YamlValue:
    """`tree` with every variable applied; of two that overlap, the more specific one wins."""
    for name in sorted(_variables(env), key=lambda name: (name.count(NESTING), name)):
        value = YamlValue(
            env[name], name, directory=Path.cwd(), text=env[name], loose=True, origin="environment"
        )
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
        if not any(_is_of_service(name, service) for service in services):
            yield name


def _is_of_service(name: str, service: str) -> bool:
    """Whether Kubernetes sets `name` for a service that it calls `service`."""
    return name == f"{service}_PORT" or name.startswith(
        (f"{service}_PORT_", f"{service}_SERVICE_HOST", f"{service}_SERVICE_PORT")
    )


def _put(tree: YamlValue, kind: SettingKind, parts: list[str], value: YamlValue) -> YamlValue:
    if not parts:
        expanded = value if kind.scalar else expand_text(value)
        return merge(tree, expanded) if kind.section else expanded
    if kind.scalar or kind.listing:
        raise LookupError(parts[0])
    if not isinstance(tree.data, dict | None):
        return tree  # the file has something else here; it is reported when that is decoded
    children: dict[str, YamlValue] = tree.data or {}
    key, base = _step(kind, parts[0], children)
    child = children.get(key, YamlValue(None, value.where, directory=value.directory))
    return replace(tree, data={**children, key: _put(child, base, parts[1:], value)})


def _step(
    kind: SettingKind, part: str, children: Mapping[str, YamlValue]
) -> tuple[str, SettingKind]:
    """The key that `part` of a variable's name refers to. LookupError: there is none."""
    if kind.section:
        return part, members(kind)[part]
    for key in children:
        if key.lower().replace("-", "_") == part:
            return key, item_kind(kind)
    return _spelling(part, key_kind(kind)), item_kind(kind)


def _spelling(part: str, key: SettingKind) -> str:
    """Spelling of a new key (case, dashes), which the name of a variable cannot express."""
    if key.has_mark("dashes"):
        return part.replace("_", "-")
    return part.upper() if key.has_mark("capitals") else part


def merge(base: YamlValue, override: YamlValue) -> YamlValue:
    """Merged settings: mappings are merged key by key; anything else replaces what was there."""
    if not isinstance(base.data, dict):
        return override
    if override.data is None:  # a section whose entries are all commented out
        return base
    if not isinstance(override.data, dict):
        return override
    shared_keys = {
        key: merge(base.data[key], value) if key in base.data else value
        for key, value in override.data.items()
    }
    return replace(override, data={**base.data, **shared_keys})


def _unknown(name: str, root: SettingKind) -> Problem:
    parts = name[len(PREFIX) :].lower().split(NESTING)
    similar = get_close_matches(name.upper(), _names(root, (), parts), n=1, cutoff=0.8)
    return Problem(name, "", "there is no such setting", similar[0] if similar else None)


def _names(kind: SettingKind, path: KeyPath, parts: list[str]) -> Iterator[str]:
    """Names of variables; below a mapping those of the entry that `parts` name."""
    if path:
        yield variable(path)
    if kind.section:
        for name, base in members(kind).items():
            yield from _names(base, (*path, name), parts)
    elif kind.mapping and len(parts) > len(path):
        yield from _names(item_kind(kind), (*path, parts[len(path)]), parts)


DEFAULTS = Path(__file__).with_name("defaults.yaml")


def load(path: str | None, env: Mapping[str, str]) -> Settings:
    """The settings in effect. Raises SettingsError with all problems.

    `path` None: the file that $TOOLGATE_CONFIG names, else ./toolgate.yaml if it exists.
    """
    problems: list[Problem] = []
    tree = _defaults()
    file = settings_file(path, env)
    if file is not None:
        tree = merge(tree, _root(_read(file, str(file), env, problems)))
    root = kind_of(Settings)
    tree = overridden(tree, root, env, problems)
    data = decode_settings(tree, root, problems, _default_sections())
    if problems:
        raise SettingsError(*problems)
    _complete_presets(data, tree)
    settings = _with_endpoints(_with_backend(convert(data, Settings)))
    problems = conflicts(settings, lambda *paths: _where(tree, *paths))
    if problems:
        raise SettingsError(*problems)
    return settings


def _complete_presets(data: Mapping[str, Any], tree: YamlValue) -> None:
    """Complete the accounts of sources that name a preset. Raises SettingsError."""
    problems = []
    for name, source in data["sources"].items():
        connect = source.get("connect")
        if connect and connect.get("preset"):
            try:
                source["connect"] = complete_connect(connect, is_mcp=bool(source.get("mcp")))
            except ValueError as error:
                path = ("sources", name, "connect")
                problems.append(Problem(_where(tree, path), dotted_path(path), str(error)))
    if problems:
        raise SettingsError(*problems)


@cache
def _defaults() -> YamlValue:
    """The file of the defaults, which does not change while the program runs."""
    problems: list[Problem] = []
    tree = _read(DEFAULTS, DEFAULTS.name, None, problems)
    if problems:
        raise SettingsError(*problems)
    return tree


@cache  # most sections are as the defaults have them
def _default_sections() -> Mapping[int, Any]:
    """Data of the sections of the defaults, by the identity of the section."""
    defaults, problems = _defaults(), list[Problem]()
    data = decode(defaults, kind_of(Settings), (), problems)
    return {id(section): data[name] for name, section in defaults.data.items()}


def _with_backend(settings: Settings) -> Settings:
    """The settings with the backend that `state.backend: auto` stands for."""
    state = settings.state
    if state.backend == "auto":
        single_process = settings.server.processes == 1
        state = structs.replace(state, backend="memory" if single_process else "postgres")
    return structs.replace(settings, state=state)


Model = TypeVar("Model", Strategy, EmbeddingSettings, PurposeModel)


def _with_endpoints(settings: Settings) -> Settings:
    """The settings with the address, key and limit of the endpoints that models name."""
    endpoints = settings.models.endpoints

    def at(model: Model) -> Model:
        endpoint = endpoints.get(model.endpoint)
        if endpoint is None:
            return model
        key, connections = (
            model.api_key or endpoint.api_key,
            endpoint.connections or model.connections,
        )
        return structs.replace(model, url=endpoint.url, api_key=key, connections=connections)

    embedding = at(settings.embedding)
    purposes = {name: at(model) for name, model in embedding.purposes.items()}
    strategies = {name: at(model) for name, model in settings.models.strategies.items()}
    return structs.replace(
        settings,
        embedding=structs.replace(embedding, purposes=purposes),
        models=structs.replace(settings.models, strategies=strategies),
    )


def settings_file(path: str | None, env: Mapping[str, str]) -> Path | None:
    """The file that `load` reads, None when there is none to read."""
    named = path or env.get(FILE_VARIABLE)
    if named:
        return Path(named)
    usual = Path(DEFAULT_FILE)
    return usual if usual.exists() else None


def mask_secrets(settings: Settings) -> dict[str, Any]:
    """The settings as plain data with secrets masked, for display."""
    plain: dict[str, Any] = to_builtins(settings)
    for group, key in WITH_PASSWORDS:
        plain[group][key] = _without_password(plain[group][key])
    for group, key in SECRET:
        plain[group][key] = plain[group][key] and MASK
    for group, key in WITH_KEYS:
        for entry in plain[group][key].values():
            entry["api_key"] = entry["api_key"] and MASK
    for collector in (plain["tracing"], plain["metrics"]["otlp"]):
        collector["headers"] = dict.fromkeys(collector["headers"], MASK)
    plain["secrets"]["old_keys"] = [MASK] * len(settings.secrets.old_keys)
    plain["events"]["kafka"]["password"] = plain["events"]["kafka"]["password"] and MASK
    smtp = plain["notifications"]["smtp"]
    smtp["password"] = smtp["password"] and MASK
    for entry in (*plain["login"]["providers"].values(), *plain["login"]["clients"].values()):
        entry.update({key: MASK for key in ("secret", "client_secret") if entry.get(key)})
    for entry in (*plain["events"]["webhooks"].values(), *plain["events"]["inbound"].values()):
        entry.update({key: MASK for key in ("secret", "old_secret") if entry[key]})
    for hook in plain["hooks"].values():
        hook["secret"] = hook["secret"] and MASK
    for source in plain["sources"].values():
        # All of them: any header may carry the service's key.
        source["headers"] = dict.fromkeys(source["headers"], MASK)
        source["env"] = dict.fromkeys(source["env"], MASK)
        client = source["connect"]["client"] or {}
        client.update({key: MASK for key in ("secret",) if client.get(key)})
        for credential in (*source["credentials"].values(), source["exchange"] or {}):
            credential.update({key: MASK for key in CONFIDENTIAL if credential.get(key)})
        for key in ("openapi", "graphql", "hybrid", "overlay", "mcp", "a2a"):
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


__all__ = ["SettingsError", "load", "mask_secrets", "settings_file"]
