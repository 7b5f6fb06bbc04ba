"""The method tables: handlers, and the revisions that have them."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from config.settings import Settings
from gateway.app.access import Access
from gateway.app.search_usage import usage_recorder
from gateway.app.shared_state import SharedState
from gateway.app.upstreams import Federation
from gateway.context import Context
from gateway.interfaces import CompleteResults, Guard, Middleware, Relay, Upstream
from gateway.methods.call_plans import CallPlans
from gateway.methods.describe_tools import Describe, DescribeSeveral
from gateway.methods.hybrid_actions import Services
from gateway.methods.lifecycle import Lifecycle, LogLevels, Subscriptions
from gateway.methods.lists import Lists, Modes, as_described
from gateway.methods.prompts import Completion, Prompts
from gateway.methods.resources import ResourceMethods
from gateway.methods.result_processing import AnswerProcessing
from gateway.methods.rpc_discover import Discovery
from gateway.methods.search_tools import Find, SearchLimits, SearchTools, Usage
from gateway.methods.skills.acting_agents import Agents, Handles
from gateway.methods.skills.skill_prompts_and_resources import SkillFiles
from gateway.methods.skills.use_skill import ListSkills, ReadFile, SkillLimits, UseSkill
from gateway.methods.tools import BuiltInTools, CallToolResolver, ToolMethods
from gateway.methods.upstream_tasks import TaskMethods
from gateway.policy.visibility import PolicyView
from gateway.protocol.dispatcher import Dispatcher, Method
from gateway.protocol.revision_adapter import tool_result
from gateway.protocol.sealed_state import Sealer, TaskIds
from gateway.state.sessions import Sessions
from gateway.upstreams.http.uploads import ReadResource
from registry.catalog.catalogs import Catalogs
from registry.database.postgres import AWAY, Pool
from registry.skills.rows import file_content
from registry.skills.snapshot import Skill
from schemas.binding import Does, GatewayBinding
from schemas.errors import Fault, Unavailable
from schemas.jsonrpc import Request, decode_members
from schemas.mcp.revisions import IN_PROCESS, PORTAL, V2025_11_25, Revision
from schemas.tool import ToolResult

if TYPE_CHECKING:  # a gateway without wings does not import them
    from gateway.wings.interface import CallTool

REGISTRY_UNAVAILABLE = "The registry cannot be read now"


def resource_reader(outcome: Callable[[Context, Request], Awaitable[Any]]) -> ReadResource:
    """Resource reader for internal use; `outcome` is the dispatcher's, so all middleware runs."""

    async def read(uri: str, context: Context) -> Mapping[str, Raw] | None:
        # a revision that has the method, whatever the caller uses, and without server-to-client
        # requests
        reading = replace(context, revision=V2025_11_25, params={}, peer=None, borrows=None)
        request = Request("2.0", "resources/read", {"uri": uri}, context.request_id)
        result = await outcome(reading, request)
        return decode_members(result) if isinstance(result, Raw) else None

    return read


class SkillParts:
    def __init__(
        self,
        settings: Settings,
        lists: Lists,
        *,
        sealer: Callable[[], Awaitable[Sealer]],
        sessions: Sessions,
        find: Find,
        read_file: ReadFile,
    ) -> None:
        skill_settings, search = settings.skills, settings.search
        agents = Agents(skill_settings.agent_claim)
        limits = SkillLimits(
            search.answer_tokens, skill_settings.instructions_tokens, skill_settings.handle_ttl_s
        )
        self.handles = Handles(agents, sealer, skill_settings.handle_ttl_s)
        self.listing = ListSkills(
            lists, agents, find=find, limit=search.limit, tokens=search.answer_tokens
        )
        self.using = UseSkill(
            lists,
            agents,
            handles=self.handles,
            limits=limits,
            read_file=read_file,
            change=sessions.change,
            tell=sessions.notify,
        )
        self.files = SkillFiles(lists, agents, read_file)


def file_reader(pool: Callable[[], Pool | None]) -> ReadFile:
    async def read(tenant: str, skill: Skill, path: str) -> bytes | None:
        opened = pool()
        if opened is None:
            raise Unavailable(REGISTRY_UNAVAILABLE)
        try:
            return await file_content(opened, tenant, skill, path)
        except AWAY as error:
            raise Unavailable(REGISTRY_UNAVAILABLE) from error

    return read


Table = Mapping[str, Method]


def dispatchers(
    settings: Settings,
    *,
    catalogs: Catalogs,
    upstreams: Mapping[type, Upstream],
    access: Access,
    federation: Federation,
    relay: Relay,
    state: SharedState,
    middleware: Sequence[Middleware],
    guards: Sequence[Guard],
    answering: AnswerProcessing,
    find: Find,
    pool: Callable[[], Pool | None],
    accounts: Callable[[Lists], Upstream] | None = None,
    complete: CompleteResults = as_described,
) -> tuple[Dispatcher, Dispatcher]:
    """Dispatchers of MCP and `/rpc`, and of the portal paths, whose tools/list differs. `upstreams`
    is keyed by the class of the bindings that it executes; `guards` are those of calls, outermost
    first; `pool` returns the registry's connections, None until it has answered; `accounts` makes
    the tool for accounts of callers, where they log in."""
    verify_scope = settings.auth.verify_scope
    lists = _lists(settings, catalogs, federation, access.policy_view, complete=complete)
    skills = SkillParts(
        settings,
        lists,
        sealer=federation.sealer,
        sessions=state.sessions,
        find=find,
        read_file=file_reader(pool),
    )
    usage = usage_recorder(settings.search, pool)
    search_tools = _search_tools(settings, lists, find, handles=skills.handles, usage=usage)
    built_in_tools = dict(_own(settings, lists, search_tools, skills))
    if accounts is not None:
        built_in_tools["connections"] = accounts(lists)
    plans = CallPlans(
        {**upstreams, GatewayBinding: BuiltInTools(built_in_tools)}, guards, access.policy_view
    )
    tools = ToolMethods(
        lists,
        plans,
        verify_scope=verify_scope,
        answering=answering,
        call_tool=CallToolResolver(lists, skills.handles),
        usage=usage,
        mean=search_tools.mean,
        waits_s=settings.mcp.parked_s,
    )
    services = Services(lists, plans, verify_scope, tools)
    methods = {
        **session_methods(lists, state, settings.mcp.instructions),
        **_method_table(lists, relay, state, skills.files, task_ids=federation.task_ids),
        **tool_methods(lists, tools),
    }
    on_portal = _portal_methods(services, anonymous_list=settings.portal.anonymous_list)
    return (
        Dispatcher(methods, services.call_by_id, middleware, tools.rate_limit_result),
        Dispatcher(on_portal, services.call_by_id, middleware),
    )


def _lists(
    settings: Settings,
    catalogs: Catalogs,
    federation: Federation,
    policy_view: PolicyView,
    *,
    complete: CompleteResults,
) -> Lists:
    mcp = settings.mcp
    return Lists(
        catalogs,
        page_size=mcp.page_size,
        ttl_ms=mcp.list_ttl_ms,
        down=federation.down,
        fail_closed=mcp.when_down == "fail_closed",
        verify_scope=settings.auth.verify_scope,
        modes=_modes(settings),
        agents=Agents(settings.skills.agent_claim),
        policy_view=policy_view,
        complete=complete,
    )


def _search_tools(
    settings: Settings, lists: Lists, find: Find, *, handles: Handles, usage: Usage | None
) -> SearchTools:
    search = settings.search
    return SearchTools(
        lists,
        find,
        limits=SearchLimits(search.limit, search.limit_max, search.answer_tokens),
        handles=handles,
        learn=None if usage is None else usage.on_search,
    )


def _portal_methods(services: Services, *, anonymous_list: bool) -> Table:
    return {
        "tools/list": Method(services.list, lambda r: r is PORTAL, anonymous_list),
        "tools/call": Method(services.call, lambda r: r is PORTAL, open_to_all=True),
    }


def _modes(settings: Settings) -> Modes:
    disclosure, code = settings.disclosure, settings.code
    return Modes(
        disclosure.mode,
        disclosure.list_tokens,
        code=code.disclosure if code.enabled else "off",
    )


def _own(
    settings: Settings, lists: Lists, search_tools: SearchTools, skills: SkillParts
) -> Mapping[Does, Upstream]:
    return {
        "describe": Describe(lists),
        "search_tools": search_tools,
        "describe_tools": DescribeSeveral(lists, settings.search.answer_tokens),
        "list_skills": skills.listing,
        "use_skill": skills.using,
    }


def tool_methods(lists: Lists, tools: ToolMethods) -> Table:
    """Methods of tools alone."""
    return {
        "tools/list": Method(tools.list, _tools),
        "tools/call": Method(tools.call, _tools),
        "rpc.discover": Method(Discovery(lists).discover, lambda r: r.tools_are_methods),
    }


def session_methods(lists: Lists, state: SharedState, instructions: str) -> Table:
    """Methods of every MCP endpoint."""
    lifecycle = Lifecycle(lists, instructions)
    logging = LogLevels(lists, state.sessions.change)
    subscriptions = Subscriptions(state.hub, state.sessions, lists)
    return {
        "initialize": Method(lifecycle.initialize, _handshake),
        "ping": Method(lifecycle.ping, _handshake),
        "notifications/cancelled": Method(subscriptions.cancel, _handshake),
        "logging/setLevel": Method(logging.set_level, _handshake),
        "server/discover": Method(lifecycle.discover, _stateless),
        "subscriptions/listen": Method(subscriptions.listen, _stateless),
    }


def _method_table(
    lists: Lists, relay: Relay, state: SharedState, skills: SkillFiles, *, task_ids: TaskIds
) -> Table:
    """Methods relayed to other servers, beside tools; and skills, which are served alike."""
    prompts, completion = Prompts(lists, relay, skills), Completion(lists, relay)
    resources = ResourceMethods(
        lists, relay, hub=state.hub, stored_answers=state.kept, skills=skills
    )
    tasks = TaskMethods(lists, relay, task_ids)
    return {
        "prompts/list": Method(prompts.list, _mcp),
        "prompts/get": Method(prompts.get, _mcp),
        "resources/list": Method(resources.list, _mcp),
        "resources/templates/list": Method(resources.templates, _mcp),
        "resources/read": Method(resources.read, _tools),
        "resources/subscribe": Method(resources.subscribe, _handshake),
        "resources/unsubscribe": Method(resources.unsubscribe, _handshake),
        "resources/directory/read": Method(skills.directory, _mcp),
        "skills/list": Method(skills.list, _mcp),
        "skills/get": Method(skills.get, _mcp),
        "completion/complete": Method(completion.complete, _mcp),
        "tasks/get": Method(tasks.relay, lambda r: r.tasks or _stateless(r)),
        "tasks/cancel": Method(tasks.relay, lambda r: r.tasks or _stateless(r)),
        "tasks/result": Method(tasks.relay, lambda r: r.tasks),
        "tasks/update": Method(tasks.relay, _stateless),
    }


def _mcp(revision: Revision) -> bool:
    return revision.mcp


def _tools(revision: Revision) -> bool:
    return revision.mcp or revision.tools_are_methods


def _handshake(revision: Revision) -> bool:
    return revision.handshake


def _stateless(revision: Revision) -> bool:
    return revision.mcp and not revision.handshake


def calling(outcome: Callable[[Context, Request], Awaitable[Any]]) -> "CallTool":
    """Calls of tools by a wing or the console; `outcome` is the dispatcher's, so all middleware
    runs."""

    async def call(context: Context, name: str, arguments: Mapping[str, Any]) -> ToolResult:
        # a revision that has the method, whatever the caller uses; questions go to an asker alone
        asking = msgspec.structs.replace(context, revision=IN_PROCESS, params={}, peer=None)
        params = {"name": name, "arguments": dict(arguments)}
        result = await outcome(asking, Request("2.0", "tools/call", params, context.request_id))
        if isinstance(result, Fault):
            raise result
        return tool_result(decode_members(result))

    return call
