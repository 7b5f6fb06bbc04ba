"""Groups of commands that are made from operations: an attribute of this module is a group.

A row of `gateway.cli.commands` has the word of a command and the operation that it calls, with what
the command line has beside it. Arguments are those of the path, options the members of query and
body, tables the columns of the resource's view. `--url` and `--key-file` name a running gateway;
without them operations run in this process, over the registry.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import cache, partial, wraps
from http import HTTPStatus
from inspect import cleandoc
from operator import attrgetter
from typing import IO, Any, TypeVar

import click

from config.settings import Settings
from gateway.admin.resource_views import VIEWS
from gateway.cli.commands import GROUPS, RESOURCES, STATUS, CommandGroup, CommandRow
from gateway.cli.common.event_loop import run
from gateway.cli.common.failure import USAGE, CommandFailure, fail
from gateway.cli.common.lazy import LazyGroup, load
from gateway.cli.common.operation_parameters import (
    EXAMPLES,
    SECONDS,
    Member,
    argument,
    given_members,
    members_of_call,
    option,
)
from gateway.cli.common.options import ask, check_terminal, json_option, tenant_option, yes_option
from gateway.cli.common.output import note, print_json, remark, say
from gateway.cli.common.parameter_types import DOCUMENT, span_of
from gateway.cli.common.settings import settings_option
from gateway.cli.common.tables import cell, print_entries, print_entry
from gateway.cli.common.text import one_line
from gateway.cli.running.client import (
    OperationClient,
    OperationRefused,
    check_credentials,
    gateway_options,
    running_gateway,
)
from gateway.cli.running.jobs import finish, wait_for_job
from gateway.operations.operation import BODY, IF_MATCH, IF_NONE_MATCH, Operation
from gateway.operations.resource_view import ResourceView
from schemas.similar_names import did_you_mean

SEVERAL = """Entries are changed one after another. The first failure stops the command; its message
names those that are done."""
LISTS = frozenset({"items", "next"})  # members of a page
UNREAD = ("expected a time with", "expected integer")  # of spans and times
ENTRIES_COMPARED = 2000  # entries among which a similar name is looked for
LOCAL = "gateway.cli.local:open_operations"  # imported by commands that run here

Json = dict[str, Any]
T = TypeVar("T")


def __getattr__(name: str) -> click.Command:
    if name in STATUS.rows:
        return OperationGroup(name, STATUS).load(name)
    if name not in GROUPS:
        raise AttributeError(name)
    return OperationGroup(name, GROUPS[name])


class OperationGroup(LazyGroup):
    """The commands of a group: those of operations, and those written by hand."""

    def __init__(self, name: str, group: CommandGroup) -> None:
        self._group = group
        rows = {
            word: ("", row.summary) if isinstance(row, CommandRow) else row
            for word, row in group.rows.items()
        }
        super().__init__(name, lazy=rows, help=group.help)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """A command for the list of them; its summary is that of its operation."""
        command, row = super().get_command(ctx, name), self._group.rows.get(name)
        if command is not None and isinstance(row, CommandRow) and not command.short_help:
            command.short_help = self.operation(row).summary
        return command

    def load(self, name: str) -> click.Command:
        row = self._group.rows[name]
        if not isinstance(row, CommandRow):
            return super().load(name)
        return make_command(name, self._group, row, self.operation(row))

    def operation(self, row: CommandRow) -> Operation:
        return declared_operations(self._group.resources)[row.operation]


@cache
def declared_operations(resources: Sequence[str]) -> Mapping[str, Operation]:
    """The rows of resources. They are made without what handlers need, which nothing calls here."""
    operations: dict[str, Operation] = {}
    for target in resources:
        resource = load(target)
        operations |= {row.id: row for row in object.__new__(resource).operations}
    return operations


def make_command(
    word: str, group: CommandGroup, row: CommandRow, operation: Operation
) -> click.Command:
    members = {
        name: member
        for name, member in members_of_call(operation).items()
        if name not in row.members and not row.body
    }

    @click.command(word, help=_help(row, operation), short_help=row.summary or operation.summary)
    @json_option
    @gateway_options(key_required=False, local=not group.remote)
    @settings_option
    def command(
        settings: Settings,
        *,
        url: str | None,
        key_file: IO[str] | None,
        as_json: bool,
        tenant: str | None = None,
        **values: Any,
    ) -> None:
        members_given = given_members(members, values)
        if row.changes and not members_given:
            fail("expected an option that changes it; see --help", USAGE)
        if not group.remote and url is None and key_file is None:
            check_needs(settings, group)
        call = OperationCall(word, group, row, operation, values, members_given, as_json=as_json)
        run(call.make(settings, url=url, key_file=key_file, tenant=tenant))

    more = [] if group.remote else [tenant_option]
    more += [yes_option] if row.asks(operation) else []
    for decorate in more:
        command = decorate(command)
    command.params = [*_parameters(row, operation, members), *command.params]
    return command


def check_needs(settings: Settings, group: CommandGroup) -> None:
    """Fails where a setting is off, without which there are no such operations."""
    for setting in group.needs:
        if not attrgetter(setting)(settings):
            fail(f"expected {setting}: true, in the settings of the gateway, too", USAGE)


def _parameters(
    row: CommandRow, operation: Operation, members: Mapping[str, Member]
) -> list[click.Parameter]:
    names = operation.names
    path = [
        argument(
            Member(name, click.STRING, required=True, is_list=row.each and name == names[-1]),
            row.metavars.get(name, ""),
        )
        for name in names
    ]
    placed = [argument(members[name], row.metavars.get(name, "")) for name in row.arguments]
    body_arguments: list[click.Parameter] = (
        [click.Argument([BODY], type=DOCUMENT, metavar=row.body)] if row.body else []
    )
    options: list[click.Parameter] = [
        option(member, row.options.get(name, ""), row.texts.get(name, ""))
        for name, member in members.items()
        if name not in row.arguments
    ]
    if operation.match:
        text = "ETag of the entry as it was read; * for any."
        options.append(click.Option(["--if-match"], metavar="TAG", help=text))
    if row.lists(operation):
        text = f"Most entries [default: {row.limit or 'all'}]."
        options.append(click.Option(["--limit"], type=click.IntRange(1), help=text))
    if operation.job is not None:
        options.append(click.Option(["--no-wait"], is_flag=True, help="Print a job at once."))
    return [*path, *placed, *body_arguments, *options]


def _help(row: CommandRow, operation: Operation) -> str:
    plural_help = SEVERAL if row.each else ""
    parts = [row.summary or operation.summary, operation.details, row.help, plural_help]
    if row.examples:
        lines = "".join(f"\n  {example}" for example in row.examples)
        parts.append(f"\b\nExample{'s' * (len(row.examples) > 1)}:{lines}")
    return "\n\n".join(cleandoc(part) for part in parts if part)


@asynccontextmanager
async def open_client(
    settings: Settings,
    *,
    url: str | None,
    key_file: IO[str] | None,
    tenant: str | None = None,
    remote: bool = False,
    root: str = "",
    resources: Sequence[str] = (),
    needs: Sequence[str] = (),
    **of_process: Any,
) -> AsyncIterator[OperationClient]:
    """The operations of the gateway that options name, or of this process, which imports
    `resources` alone. `root`: path of the gateway's API; "": that of the admin API. `needs`: the
    settings without which a gateway lacks the operations. `of_process`: see `open_operations` in
    `gateway.cli.local`."""
    if not remote and url is None and key_file is None:
        async with load(LOCAL)(settings, tenant, resources, **of_process) as operations:
            yield operations
        return
    if tenant is not None:
        fail("--tenant: at a gateway the key has a tenant; remove the option", USAGE)
    if url is None and not root:
        check_credentials(settings, key_file)
    path = root or settings.admin.path
    yield running_gateway(settings, path, url=url, key_file=key_file, needs=needs)


Connect = Callable[..., AbstractAsyncContextManager[OperationClient]]
F = TypeVar("F", bound=Callable[..., Any])


def client_option(*resources: str) -> Callable[[F], F]:
    """Add `--config`, `--url` and `--key-file`. Commands get the settings, and `connect`, which
    opens the operations of the gateway that is named, or those of this process."""
    targets = tuple(RESOURCES + resource for resource in resources)

    def decorate(command: F) -> F:
        @wraps(command)
        def call_with_client(
            settings: Settings, *, url: str | None, key_file: IO[str] | None, **values: Any
        ) -> Any:
            connect = partial(open_client, settings, url=url, key_file=key_file, resources=targets)
            return command(settings, connect, **values)

        options = gateway_options(key_required=False, local=True)
        return options(settings_option(call_with_client))  # type: ignore[return-value]  # as settings_option

    return decorate


class OperationCall:
    """A call of a command's operation, or one for each of its last arguments."""

    def __init__(
        self,
        word: str,
        group: CommandGroup,
        row: CommandRow,
        operation: Operation,
        values: Mapping[str, Any],
        members: Mapping[str, Any],
        *,
        as_json: bool,
    ) -> None:
        self._word = word
        self._as_json = as_json
        self._is_local = False
        self._group = group
        self._row = row
        self._operation = operation
        self._values = values
        self._given = {**row.members, **members}
        if row.body:
            self._given[BODY] = values[BODY]
        self._view = VIEWS.get(group.view)
        self._written = "Changed"
        self._entries: Sequence[Json] | None = None  # among which names are looked for
        self._unread = ""  # why they are not
        self._typed = ""  # the entry that is printed about, as it was written

    @property
    def subject(self) -> str:
        """The entry of the path."""
        named = (self._values[name] for name in self._operation.names)
        return " ".join(" ".join(name) if isinstance(name, tuple) else name for name in named)

    async def make(
        self,
        settings: Settings,
        *,
        url: str | None,
        key_file: IO[str] | None,
        tenant: str | None,
    ) -> None:
        """Call the operation, and print each answer as it comes."""
        entries, asks = self._names(), self._asks()
        if len(entries) > 1 and self._values.get("if_match") not in (None, "*"):
            fail("--if-match: the tag is that of one entry; expected one, or *", USAGE)
        if asks:
            check_terminal(self._word, self.subject)
        self._is_local = not self._group.remote and url is None and key_file is None
        opened = open_client(
            settings,
            url=url,
            key_file=key_file,
            tenant=tenant,
            remote=self._group.remote,
            root=self._group.root,
            resources=self._group.resources,
            needs=self._group.needs,
        )
        async with opened as client:
            entries = [await self._resolve(client, names) for names in entries]
            if asks:
                ask(self._word, f"{self.subject} {await self._warning(client, entries)}".strip())
            await self._make_each(client, entries)
        if self._is_local:
            note(self._row.remarks(settings))

    def _asks(self) -> bool:
        return self._row.asks(self._operation) and not self._values.get("yes")

    async def _warning(self, client: OperationClient, entries: Sequence[Json]) -> str:
        """Consequences of a removal, from the view of the first entry."""
        if not self._row.warns or self._view is None:
            return ""
        call = partial(client.call, self._view.shows, entries[0])
        entry = (await hinting(client, entries[0], call)).value
        return self._row.warns.format_map(_Facts(entry))

    async def _make_each(self, client: OperationClient, entries: Sequence[Json]) -> None:
        done: list[Any] = []
        try:
            for names, typed in zip(entries, self._names(), strict=True):
                done.append(await self._call(client, names))
                if not self._prints_json(done[-1]):
                    self._typed = typed.get(self._operation.names[0], "") if typed else ""
                    self._print(names, done[-1])
        except CommandFailure as failure:
            if not done:
                is_absent = isinstance(failure.__cause__, OperationRefused)
                text = failure.message + (self._unread if is_absent else "")
                raise CommandFailure(text, failure.exit_code) from failure
            last = self._operation.names[-1]
            done_entries, open_entries = entries[: len(done)], entries[len(done) :]
            text = f"{failure.message} Done: {_words(done_entries, last)}."
            raise CommandFailure(f"{text} Not done: {_words(open_entries, last)}.") from failure
        finally:
            if done and self._prints_json(done[0]):
                print_json(done if self._row.each else done[0])

    def _names(self) -> list[Json]:
        """The path parameters of each call."""
        names = {name: self._values[name] for name in self._operation.names}
        if not self._row.each:
            return [names]
        last = self._operation.names[-1]
        return [{**names, last: value} for value in names[last]]

    async def _call(self, client: OperationClient, names: Json) -> Any:
        arguments = {**self._given, **names, **self._conditions()}
        try:
            if self._row.lists(self._operation):
                limit = self._values.get("limit") or self._row.limit
                items = partial(client.items, self._operation.id, arguments, limit)
                return await hinting(client, {**self._given, **names}, items)
            call = partial(client.call, self._operation.id, arguments)
            answer = await hinting(client, {**self._given, **names}, call, self._lists)
        except OperationRefused as refused:
            raise CommandFailure(self._refusal(refused), refused.exit_code) from refused
        if answer.is_job and not self._values.get("no_wait"):
            return await wait_for_job(client, answer.value["job"], cancels=True)
        if self._row.fails and answer.value.get(self._row.fails):
            raise CommandFailure(f"{self.subject}: {one_line(answer.value[self._row.fails])}")
        self._written = "Added" if answer.created else "Changed"
        return answer.value

    @property
    def _lists(self) -> str:
        """The command that lists entries of the group."""
        group, _, _ = click.get_current_context().command_path.rpartition(" ")
        return f"`{group} list` lists what there is." if "list" in self._group.rows else ""

    def _refusal(self, refusal: OperationRefused) -> str:
        """The text of a refusal, in words of the command line."""
        text = refusal.text(self._mistake)
        for name, member in members_of_call(self._operation).items():
            text = text.replace(f"`{name}`", f"--{member.word}")
        if refusal.status == HTTPStatus.PRECONDITION_FAILED:
            text += " With a command: --if-match '*'."
        return text

    def _mistake(self, place: str, detail: str) -> str:
        """An error with the option in which it is."""
        name, _, rest = place.removeprefix("/").partition("/")
        member = members_of_call(self._operation).get(name)
        if member is None or self._row.body:
            return f"{place.removeprefix('/')}: {detail}" if place else detail
        if member.type in EXAMPLES and detail.startswith(UNREAD):
            text = EXAMPLES[member.type].removesuffix(".")
            detail = f"{detail}. In a command: {text[:1].lower()}{text[1:]}"
        inside = "" if member.is_list or not rest else f" (/{rest})"
        word = self._row.options.get(name) or member.word
        return f"{name.upper() if name in self._row.arguments else f'--{word}'}{inside}: {detail}"

    def _conditions(self) -> Json:
        tag = self._values.get("if_match")
        if tag is not None:
            return {IF_MATCH: tag}
        if self._operation.match != "required":
            return {}
        return {IF_NONE_MATCH: "*"} if self._operation.creates else {IF_MATCH: "*"}

    async def _resolve(self, client: OperationClient, names: Json) -> Json:
        """Path parameters with the key of an entry that was given by its name."""
        view = self._view
        if view is None or not view.names or not names:
            return names
        first, reference = self._operation.names[0], names[self._operation.names[0]]
        if self._entries is None:
            self._entries = await self._readable_entries(client, view)
        named = [
            str(entry[view.key])
            for entry in self._entries
            if entry.get(view.names) == reference and not entry.get(view.ended)
        ]
        keys = {str(entry[view.key]) for entry in self._entries if entry[view.key] == reference}
        if len(keys | set(named)) > 1:
            raise CommandFailure(_ambiguity(reference, is_key=bool(keys), named=named), USAGE)
        return {**names, first: named[0]} if named else names

    async def _readable_entries(
        self, client: OperationClient, view: ResourceView
    ) -> Sequence[Json]:
        """The entries among which a name is looked for; none, where the caller may not read them:
        then the key alone names one."""
        try:
            return await client.items(view.lists, {})
        except OperationRefused as refused:
            if refused.status != 403:
                raise
            self._unread = f" Names cannot be looked up ({refused.message}); expected an id."
            return ()

    def _prints_json(self, value: Any) -> bool:
        """Whether answers are one JSON text; that of a job is printed with its end."""
        return self._as_json and not self._is_job(value)

    def _is_job(self, value: Any) -> bool:
        return self._operation.job is not None and isinstance(value, dict) and "job" in value

    def _print(self, names: Json, value: Any) -> None:
        row = self._row
        if self._is_job(value):
            finish(value)
        elif row.prints and row.prints in value:
            say(str(value[row.prints]).rstrip("\n"))
            note(self._sentence(names, value))
        elif row.says and not row.prints:
            say(self._sentence(names, value))
            if row.tells and isinstance(value, dict):
                print_entry(value)
        elif row.lists(self._operation):
            columns = row.columns or _columns(self._view)
            print_entries(columns, value)
            remark(row.hint if value else self._nothing())
        elif row.entries:
            print_entries(row.columns, value[row.entries])
            if not value[row.entries]:
                remark(self._nothing())
        elif value is not None:
            print_entry(value)

    def _nothing(self) -> str:
        """Remark on an empty list."""
        empty = self._view.empty if self._view else ""
        return " ".join(filter(None, (empty, self._row.first))) or "There is none."

    def _sentence(self, names: Json, value: Any) -> str:
        members = value if isinstance(value, dict) else {}
        call_members = members_of_call(self._operation)
        defaults = {name: member.default for name, member in call_members.items()}
        option_texts = {
            name: span_of(member) if name.endswith(SECONDS) else cell(member)
            for name, member in {**defaults, **self._given}.items()
        }
        facts = {
            **option_texts,
            **names,
            **members,
            "given": option_texts,
            "written": self._written,
        }
        facts["entry"] = names.get(self._operation.names[0]) if names else ""
        facts["typed"] = self._typed
        return one_line(self._row.says.format_map(_Facts(facts)))


def _words(entries: Sequence[Json], name: str) -> str:
    return ", ".join(str(names[name]) for names in entries)


def _ambiguity(reference: str, *, is_key: bool, named: Sequence[str]) -> str:
    if is_key:
        text = (
            f"{reference!r} is the id of one entry, and the name of another, whose id is {named[0]}"
        )
        return f"{text}: expected that id, or that of an entry without such a name."
    return f"{reference!r} is the name of several: expected an id, of {', '.join(named)}."


async def hinting(
    client: OperationClient,
    arguments: Mapping[str, Any],
    call: Callable[[], Awaitable[T]],
    lists: str = "",
) -> T:
    """The answer to a call; its failure names what is similar to an entry that does not exist, or
    else `lists`."""
    try:
        return await call()
    except OperationRefused as refused:
        if refused.status != 404:
            raise
        text = f"{refused.message} {await _hint(client, arguments) or lists}".rstrip()
        raise CommandFailure(text, refused.exit_code) from refused


async def check_source(client: OperationClient, name: str | None) -> None:
    """Fail if there is no such source."""
    if name is not None:
        arguments = {"source": name}
        await hinting(client, arguments, partial(client.call, "getSource", arguments))


async def _hint(client: OperationClient, arguments: Mapping[str, Any]) -> str:
    lists = {name: value for name, value in arguments.items() if value and isinstance(value, list)}
    firsts = {name[:-1]: value[0] for name, value in lists.items()}
    for name, value in {**arguments, **firsts}.items():
        view = next((view for view in VIEWS.values() if view.parameter == name), None)
        if view is None or not view.key or not isinstance(value, str):
            continue
        try:
            entries = await client.items(view.lists, {}, ENTRIES_COMPARED)
        except CommandFailure:  # such as that of a list that only a gateway has
            continue
        members = [member for member in (view.key, view.names) if member]
        names = {str(entry[member]) for entry in entries for member in members}
        if value not in names:
            return did_you_mean(value, names) or f"`{command_of(view)}` lists the {view.path}."
    return ""


def command_of(view: ResourceView) -> str:
    """The command that lists the entries of a view."""
    for name, group in GROUPS.items():
        for word, row in group.rows.items():
            if isinstance(row, CommandRow) and row.operation == view.lists:
                return f"toolgate {name} {word}"
    by_hand = view.path in GROUPS and "list" in GROUPS[view.path].rows
    return f"toolgate {view.path} list" if by_hand else f"toolgate admin {view.lists}"


class _Facts(dict[str, Any]):
    def __missing__(self, key: str) -> str:
        return "-"


def _columns(view: ResourceView | None) -> Sequence[tuple[str, str, str]]:
    """The columns of a list, with the key that commands take."""
    if view is None:
        return ()
    members = {member for member, _, _ in view.columns}
    first = [(view.key, view.key.capitalize(), "code")] if view.key not in {"", *members} else []
    return [*first, *view.columns]
