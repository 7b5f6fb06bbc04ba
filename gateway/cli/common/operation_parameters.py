"""Arguments and options of commands, from the path, the query and the body of an operation.

What a value may be is the operation's to judge, so that every front says the same of a wrong one:
here texts become numbers, times and lists, or stay as they are.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import click
import msgspec
from msgspec import NODEFAULT, Struct, inspect

from gateway.cli.common.parameter_types import DOCUMENT, NUMBER, PAST, SPAN, TEXT, TIME, FreeChoice
from gateway.operations.member_texts import MemberText
from gateway.operations.operation import Operation

EXAMPLE = 40  # characters
PAGING = frozenset({"after", "limit"})
RESERVED_PARAMETERS = frozenset({"tenant", "url"})  # parameters that commands have besides
SECONDS = "_s"  # at the end of the names of spans of time
BEFORE = frozenset({"since", "until", "issued_before"})  # times that are mostly past
SPLIT = "scopes"  # a list whose texts may have several words, as OAuth writes them


EXAMPLES: Mapping[click.ParamType[Any], str] = {
    SPAN: "A span such as 90s, 15m, 2h or 1d.",
    TIME: "A span from now such as 12h or 90d, or a time such as 2030-01-31T12:00Z.",
    PAST: "A span until now such as 90m or 2d, or a time such as 2030-01-31T12:00Z.",
}


class Member(Struct, frozen=True):
    """A member of a query or a body, as the command line takes it."""

    name: str
    type: click.ParamType[Any]
    required: bool
    help: str = ""
    default: Any = None
    is_flag: bool = False
    is_list: bool = False
    example: str = ""

    @property
    def parameter(self) -> str:
        """The name of its parameter of a command."""
        return f"{self.name}_" if self.name in RESERVED_PARAMETERS else self.name

    @property
    def word(self) -> str:
        """The name of its option: `--scope` of `scopes`, `--overlap` of `overlap_s`."""
        name = self.name.removesuffix("s") if self.is_list else self.name
        name = name.removesuffix(SECONDS) if self.type is SPAN else name
        return name.replace("_", "-")


def members_of_call(operation: Operation) -> Mapping[str, Member]:
    """Members of the query and the body, but those of pages."""
    body = operation.body if isinstance(operation.body, type) else None
    kinds = [operation.query, *([] if body is None else [body])]
    fields = {field.encode_name: field for kind in kinds for field in msgspec.structs.fields(kind)}
    of_pages = PAGING if "after" in fields else frozenset[str]()
    members = (
        _member(field, operation.members.get(name))
        for name, field in fields.items()
        if name not in of_pages
    )
    return {member.name: member for member in members}


def option(member: Member, word: str = "", text: str = "") -> click.Option:
    """`word`: its name; "": that of the member, with `no-` before one that holds by default.
    `text`: its help; "": that of the member."""
    if member.is_flag:
        turned = "no-" if member.default is True else ""
        flag = f"--{word or turned + member.word}"
        opposite = f"Turn off: {member.help}" if turned and member.help else member.help
        return click.Option([flag, member.parameter], is_flag=True, help=text or opposite or None)
    word, text = word or member.word, text or member.help
    if member.is_list:
        text = f"{text.removesuffix('.')}; repeatable."
    text += f" [example: {member.example}]" if member.example else ""
    if member.type in EXAMPLES:
        text = f"{text} {EXAMPLES[member.type]}".lstrip()
    return click.Option(
        [f"--{word}", member.parameter],
        type=member.type,
        required=member.required,
        multiple=member.is_list,
        help=text or None,
    )


def argument(member: Member, metavar: str = "") -> click.Argument:
    ellipsis = "..." if member.is_list else ""
    word = metavar or member.name.removesuffix("s" * member.is_list).upper()
    placeholder = f"{word}{ellipsis}" if member.required else f"[{word}]{ellipsis}"
    return click.Argument(
        [member.parameter],
        type=member.type,
        metavar=placeholder,
        nargs=-1 if member.is_list else 1,
        required=member.required,
    )


def given_members(members: Mapping[str, Member], values: Mapping[str, Any]) -> dict[str, Any]:
    """The members that were given, as an operation takes them."""
    arguments: dict[str, Any] = {}
    for name, member in members.items():
        value = values.get(member.parameter)
        if member.is_flag:
            if value:
                arguments[name] = member.default is not True
        elif member.is_list and value:
            arguments[name] = _list(member, value)
        elif not member.is_list and value is not None:
            arguments[name] = value
    return arguments


def _list(member: Member, texts: Sequence[Any]) -> list[Any]:
    """One empty text is an empty list."""
    if member.name == SPLIT:
        texts = [word for text in texts for word in str(text).split()]
    return [] if list(texts) == [""] else list(texts)


def _member(field: msgspec.structs.FieldInfo, words: MemberText | None) -> Member:
    kind, text = _plain(inspect.type_info(field.type))
    default = None if field.default is NODEFAULT else field.default
    is_list = isinstance(kind, inspect.VarTupleType | inspect.ListType)
    if isinstance(kind, inspect.VarTupleType | inspect.ListType):
        kind, inner = _plain(kind.item_type)
        text = text or inner
    name = field.encode_name
    type_ = _type(kind, name)
    fits = words is not None and len(words.example) <= EXAMPLE and type_ not in EXAMPLES
    return Member(
        name,
        type_,
        field.required,
        _sentence(text) if words is None else words.help,
        default,
        is_flag=isinstance(kind, inspect.BoolType) and not is_list,
        is_list=is_list,
        example=words.example if words and fits and "\n" not in words.example else "",
    )


def _plain(kind: inspect.Type) -> tuple[inspect.Type, str]:
    """The type without null, and its description."""
    text = ""
    while True:
        if isinstance(kind, inspect.Metadata):
            text = text or str((kind.extra_json_schema or {}).get("description", ""))
            kind = kind.type
        elif isinstance(kind, inspect.UnionType):
            others = [part for part in kind.types if not isinstance(part, inspect.NoneType)]
            if len(others) != 1:
                return kind, text
            kind = others[0]
        else:
            return kind, text


def _type(kind: inspect.Type, name: str) -> click.ParamType[Any]:
    match kind:
        case inspect.IntType() if name.endswith(SECONDS):
            return SPAN
        case inspect.IntType() | inspect.FloatType():
            return NUMBER
        case inspect.LiteralType():
            return FreeChoice([str(value) for value in kind.values if value])
        case inspect.DateTimeType():
            return PAST if name in BEFORE else TIME
        case inspect.StrType() | inspect.BoolType():
            return TEXT
        case _:
            return DOCUMENT


def _sentence(text: str) -> str:
    """A description as help."""
    return f"{text[:1].upper()}{text[1:]}." if text else ""
