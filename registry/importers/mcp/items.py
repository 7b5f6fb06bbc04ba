"""Definitions of prompts, resources and resource templates to drafts."""

from typing import Any
from urllib.parse import urlsplit

from registry.importers.imported import ItemDraft
from registry.importers.mcp.definitions import Definition, SkipEntry
from registry.names.uris import Template
from schemas.jsonrpc import json_type
from schemas.mcp.snapshot import ItemKind


def item_draft(definition: Definition, kind: ItemKind, name: str) -> ItemDraft:
    """The item; `name` is its preferred name. Raises SkipEntry."""
    members = definition.members
    if kind == "prompt":
        _check_arguments(members.get("arguments"))
    else:
        _check_name(members)
    if kind == "resource":
        _check_uri(definition.key)
    if kind == "template":
        _check_template(definition.key)
    return ItemDraft(kind, definition.key, name, members, definition.eras)


def _check_arguments(arguments: Any) -> None:
    if arguments is None:
        return
    if not isinstance(arguments, list):
        raise SkipEntry(f"its arguments are {json_type(arguments)}, expected an array")
    for argument in arguments:
        if not isinstance(argument, dict) or not isinstance(argument.get("name"), str):
            raise SkipEntry("one of its arguments has no name")


def _check_name(members: dict[str, Any]) -> None:
    if not isinstance(members.get("name"), str):
        raise SkipEntry("has no name")


def _check_uri(uri: str) -> None:
    try:
        scheme = urlsplit(uri).scheme
    except ValueError:
        scheme = ""
    if not scheme:
        raise SkipEntry("its uri is no absolute URI, as in file:///notes.txt")


def _check_template(template: str) -> None:
    try:
        Template.read(template)
    except ValueError as error:
        raise SkipEntry(f"its uriTemplate {error}") from error
