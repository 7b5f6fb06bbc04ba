"""What executes calls, wired: the client of services, what is written in Python, and the upstream
of each kind of binding."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from config.settings import Settings
from gateway.abc import Upstream
from gateway.app.services import load_services
from gateway.functions import Function, load_functions
from gateway.hybrid import Service
from gateway.methods.server import SERVER
from gateway.state.idempotency import Idempotency
from gateway.state.stored_answers import Kept
from gateway.upstreams.auth.caller import OwnAudiences
from gateway.upstreams.function import FunctionUpstream
from gateway.upstreams.graphql.upstream import GraphQLUpstream
from gateway.upstreams.http.client import Client
from gateway.upstreams.http.downloads import Downloads
from gateway.upstreams.http.tls import contexts
from gateway.upstreams.http.uploads import ReadResource, Uploads
from gateway.upstreams.hybrid.upstream import HybridUpstream
from gateway.upstreams.mcp.ways import Ways
from gateway.upstreams.python import ActionLimits, PythonUpstream
from gateway.upstreams.rest.upstream import OpenAPIUpstream
from gateway.upstreams.script import ScriptUpstream
from registry.database.postgres import Pool
from schemas.binding import (
    FunctionBinding,
    GraphQLBinding,
    HybridBinding,
    McpBinding,
    OpenAPIBinding,
    PythonBinding,
    ScriptBinding,
)
from schemas.hybrid import Action


@dataclass(frozen=True, slots=True)
class Loaded:
    """What is written in Python, by the names that the settings give it."""

    services: dict[str, Service]
    functions: dict[str, Function]


class Upstreams:
    def __init__(self, settings: Settings, pool: Callable[[], Pool | None]) -> None:
        self._settings = settings
        self.services = load_services(settings.sources)
        self.functions = load_functions(settings.functions)
        upstream, sources = settings.upstream, settings.sources
        own = OwnAudiences.of(settings.auth, settings.server.public_url)
        self.client = Client(upstream, sources, own)
        self.ways = Ways(self.client.connections, upstream, sources, msgspec.to_builtins(SERVER))
        self.idempotency = Idempotency(pool, settings.portal.idempotency_ttl_s)
        limits = ActionLimits(self._timeout_of, upstream.python_threads, upstream.python_calls)
        self.python = PythonUpstream(self.services, self.idempotency.once, limits)

    @property
    def described(self) -> dict[str, Sequence[Action]]:
        """The actions of each service that is written in Python."""
        return {name: service.actions for name, service in self.services.items()}

    def by_binding(
        self, mcp: Upstream, kept: Kept, read_resource: ReadResource
    ) -> dict[type, Upstream]:
        """The upstreams by the class of the bindings that they execute; `mcp` is one of them."""
        answers = self._settings.answers
        downloads = Downloads(kept, answers.inline_bytes, answers.download_bytes)
        uploads = Uploads(lambda: self._settings.upstream, read_resource)
        return {
            OpenAPIBinding: OpenAPIUpstream(self.client, uploads, downloads),
            GraphQLBinding: GraphQLUpstream(self.client),
            HybridBinding: HybridUpstream(self.client),
            PythonBinding: self.python,
            McpBinding: mcp,
            FunctionBinding: FunctionUpstream(self.functions, self.python, self._timeout_of),
            ScriptBinding: ScriptUpstream(lambda: self._settings.scripts),
        }

    def validates(self, source: str) -> bool:
        """Whether the answers of a source are held against its description."""
        adjusted = self._settings.sources.get(source)
        return adjusted is not None and adjusted.validate_answers == "report"

    def load(self, settings: Settings) -> Loaded:
        """What other settings name; what is loaded already stays as it is. Raises ToolgateError,
        also for certificates that cannot be used."""
        contexts(settings.sources)
        return Loaded(
            load_services(settings.sources, self.services),
            load_functions(settings.functions, self.functions),
        )

    async def reconfigure(self, settings: Settings, loaded: Loaded) -> bool:
        """Take what has been loaded, and how sources are called; returns whether that is new."""
        before, self._settings = self._settings, settings
        self.services.clear()
        self.services.update(loaded.services)
        self.functions.clear()
        self.functions.update(loaded.functions)
        if (before.upstream, before.sources) == (settings.upstream, settings.sources):
            return False
        await self.client.configure(settings.upstream, settings.sources)
        self.ways.configure(settings.upstream, settings.sources)
        return True

    def _timeout_of(self, source: str) -> float:
        adjusted = self._settings.sources.get(source)
        return (adjusted and adjusted.timeout_s) or self._settings.upstream.timeout_s
