"""Objects of Agent2Agent, whose JSON is that of 1.0 (a2a.proto): unknown members are ignored,
unknown values of enumerations are refused. Knows no transport."""

from datetime import UTC, datetime
from enum import Enum
from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType

HOPS = "toolgate/hops"  # in a message's metadata: agents that have handed the request on
MOST_HOPS = 1_000  # that a message can tell

Identifier = Annotated[str, Meta(max_length=256)]
Metadata = dict[str, Any]


class TaskState(Enum):
    UNSPECIFIED = "TASK_STATE_UNSPECIFIED"
    SUBMITTED = "TASK_STATE_SUBMITTED"
    WORKING = "TASK_STATE_WORKING"
    COMPLETED = "TASK_STATE_COMPLETED"
    FAILED = "TASK_STATE_FAILED"
    CANCELED = "TASK_STATE_CANCELED"
    INPUT_REQUIRED = "TASK_STATE_INPUT_REQUIRED"
    REJECTED = "TASK_STATE_REJECTED"
    AUTH_REQUIRED = "TASK_STATE_AUTH_REQUIRED"


TERMINAL = frozenset(
    {TaskState.COMPLETED, TaskState.FAILED, TaskState.CANCELED, TaskState.REJECTED}
)
INTERRUPTED = frozenset({TaskState.INPUT_REQUIRED, TaskState.AUTH_REQUIRED})


class Role(Enum):
    USER = "ROLE_USER"
    AGENT = "ROLE_AGENT"


class A2AObject(Struct, frozen=True, rename="camel", omit_defaults=True):
    """Base of objects: members that have their default are left out of JSON."""


class Part(A2AObject, frozen=True):
    """Exactly one of `text`, `raw`, `url` and `data`."""

    text: str | UnsetType = UNSET
    raw: bytes | UnsetType = UNSET
    url: str | UnsetType = UNSET
    data: Any = UNSET  # any JSON
    metadata: Metadata | None = None
    filename: str = ""
    media_type: str = ""

    def __post_init__(self) -> None:
        contents = (self.text, self.raw, self.url, self.data)
        if sum(content is not UNSET for content in contents) != 1:
            raise ValueError("Expected a part with exactly one of text, raw, url and data")


class Message(A2AObject, frozen=True):
    message_id: Annotated[str, Meta(min_length=1, max_length=256)]
    role: Role
    parts: Annotated[tuple[Part, ...], Meta(min_length=1)]
    context_id: Identifier = ""
    task_id: Identifier = ""
    metadata: Metadata | None = None
    extensions: tuple[str, ...] = ()
    reference_task_ids: tuple[str, ...] = ()

    @property
    def hops(self) -> int:
        """Number of agents that have handed the request on, as gateways count them."""
        hops = (self.metadata or {}).get(HOPS)
        return min(max(hops, 0), MOST_HOPS) if type(hops) is int else 0


class Artifact(A2AObject, frozen=True):
    artifact_id: str
    parts: tuple[Part, ...]
    name: str = ""
    description: str = ""
    metadata: Metadata | None = None
    extensions: tuple[str, ...] = ()


class TaskStatus(A2AObject, frozen=True):
    state: TaskState
    message: Message | None = None
    timestamp: str = ""  # RFC 3339


class Task(A2AObject, frozen=True):
    id: str
    status: TaskStatus
    context_id: str = ""
    artifacts: tuple[Artifact, ...] = ()
    history: tuple[Message, ...] = ()
    metadata: Metadata | None = None


class TaskStatusUpdate(A2AObject, frozen=True):
    task_id: str
    context_id: str
    status: TaskStatus
    metadata: Metadata | None = None


class TaskArtifactUpdate(A2AObject, frozen=True):
    task_id: str
    context_id: str
    artifact: Artifact
    append: bool = False
    last_chunk: bool = False
    metadata: Metadata | None = None


class StreamResponse(A2AObject, frozen=True):
    """Exactly one member: an event of a stream, or the answer to a message, which is one of the
    first two."""

    task: Task | None = None
    message: Message | None = None
    status_update: TaskStatusUpdate | None = None
    artifact_update: TaskArtifactUpdate | None = None

    def __post_init__(self) -> None:
        members = (self.task, self.message, self.status_update, self.artifact_update)
        if sum(member is not None for member in members) != 1:
            raise ValueError("Expected one of task, message, statusUpdate and artifactUpdate")


class Authentication(A2AObject, frozen=True):
    scheme: str  # of HTTP, such as Bearer
    credentials: str = ""


class PushConfig(A2AObject, frozen=True):
    """A webhook of a task: TaskPushNotificationConfig."""

    url: str
    id: Identifier = ""
    task_id: Identifier = ""
    token: str = ""
    authentication: Authentication | None = None
    tenant: str = ""


class PushConfigs(A2AObject, frozen=True):
    configs: tuple[PushConfig, ...]
    next_page_token: str = ""


class SendConfiguration(A2AObject, frozen=True):
    accepted_output_modes: tuple[str, ...] = ()
    task_push_notification_config: PushConfig | None = None
    history_length: Annotated[int, Meta(ge=0)] | None = None
    return_immediately: bool = False


class SendRequest(A2AObject, frozen=True):
    message: Message
    configuration: SendConfiguration = SendConfiguration()
    metadata: Metadata | None = None
    tenant: str = ""


class TaskRequest(A2AObject, frozen=True):
    """Parameters of get, cancel and subscribe."""

    id: Identifier
    history_length: Annotated[int, Meta(ge=0)] | None = None  # of get
    metadata: Metadata | None = None  # of cancel
    tenant: str = ""


class ListRequest(A2AObject, frozen=True):
    context_id: Identifier = ""
    status: TaskState = TaskState.UNSPECIFIED  # any
    page_size: Annotated[int, Meta(ge=1, le=100)] = 50
    page_token: str = ""
    history_length: Annotated[int, Meta(ge=0)] | None = None
    status_timestamp_after: datetime | None = None  # inclusive
    include_artifacts: bool = False
    tenant: str = ""


class TaskList(A2AObject, frozen=True):
    tasks: tuple[Task, ...]
    next_page_token: str  # "": the last page
    page_size: int
    total_size: int


class PushRequest(A2AObject, frozen=True):
    """Parameters of get, list and delete of webhooks."""

    task_id: Identifier
    id: Identifier = ""
    page_size: int = 0
    page_token: str = ""
    tenant: str = ""


class CardRequest(A2AObject, frozen=True):
    tenant: str = ""


class AgentInterface(A2AObject, frozen=True):
    url: str
    protocol_binding: str  # JSONRPC, HTTP+JSON, GRPC or another
    protocol_version: str  # 1.0
    tenant: str = ""


class AgentProvider(A2AObject, frozen=True):
    url: str = ""
    organization: str = ""


class AgentExtension(A2AObject, frozen=True):
    uri: str
    description: str = ""
    required: bool = False
    params: Metadata | None = None


class AgentCapabilities(A2AObject, frozen=True):
    streaming: bool | None = None
    push_notifications: bool | None = None
    extensions: tuple[AgentExtension, ...] = ()
    extended_agent_card: bool | None = None


class ApiKeyScheme(A2AObject, frozen=True):
    location: str  # query, header or cookie
    name: str
    description: str = ""


class HttpScheme(A2AObject, frozen=True):
    scheme: str
    bearer_format: str = ""
    description: str = ""


class OAuth2Scheme(A2AObject, frozen=True):
    flows: dict[str, Any]
    oauth2_metadata_url: str = ""
    description: str = ""


class OpenIdScheme(A2AObject, frozen=True):
    open_id_connect_url: str
    description: str = ""


class MutualTlsScheme(A2AObject, frozen=True):
    description: str = ""


class SecurityScheme(A2AObject, frozen=True):
    """At most one member; none: a kind that is not known."""

    api_key_security_scheme: ApiKeyScheme | None = None
    http_auth_security_scheme: HttpScheme | None = None
    oauth2_security_scheme: OAuth2Scheme | None = None
    open_id_connect_security_scheme: OpenIdScheme | None = None
    mtls_security_scheme: MutualTlsScheme | None = None


class Scopes(A2AObject, frozen=True):
    list: tuple[str, ...] = ()


class SecurityRequirement(A2AObject, frozen=True):
    """All of these schemes together."""

    schemes: dict[str, Scopes]


class AgentSkill(A2AObject, frozen=True):
    id: str
    name: str
    description: str
    tags: tuple[str, ...]
    examples: tuple[str, ...] = ()
    input_modes: tuple[str, ...] = ()
    output_modes: tuple[str, ...] = ()
    security_requirements: tuple[SecurityRequirement, ...] = ()


class CardSignature(A2AObject, frozen=True):
    protected: str
    signature: str
    header: Metadata | None = None


class AgentCard(A2AObject, frozen=True):
    name: str
    description: str
    supported_interfaces: tuple[AgentInterface, ...]  # the first is preferred
    version: str
    capabilities: AgentCapabilities
    default_input_modes: tuple[str, ...]
    default_output_modes: tuple[str, ...]
    skills: tuple[AgentSkill, ...]
    provider: AgentProvider | None = None
    documentation_url: str = ""
    security_schemes: dict[str, SecurityScheme] = {}
    security_requirements: tuple[SecurityRequirement, ...] = ()
    signatures: tuple[CardSignature, ...] = ()
    icon_url: str = ""


def format_time(time: datetime) -> str:
    """UTC with milliseconds, as both versions have it."""
    return time.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
