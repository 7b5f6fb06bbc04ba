"""Objects of A2A in both versions: what one writes, it reads, and what 1.0 has in common with 0.3
survives the way through it."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import UNSET, json
from msgspec.structs import replace

from schemas.a2a.errors import InvalidParameters, VersionNotSupported
from schemas.a2a.model import (
    A2AObject,
    AgentCapabilities,
    AgentCard,
    AgentInterface,
    AgentSkill,
    ApiKeyScheme,
    Artifact,
    Authentication,
    HttpScheme,
    Message,
    OAuth2Scheme,
    Part,
    PushConfig,
    PushConfigs,
    PushRequest,
    Role,
    Scopes,
    SecurityRequirement,
    SecurityScheme,
    SendConfiguration,
    SendRequest,
    StreamResponse,
    Task,
    TaskArtifactUpdate,
    TaskRequest,
    TaskState,
    TaskStatus,
    TaskStatusUpdate,
)
from schemas.a2a.versions import Version, decode, decode_card, encode, encode_card, read_version
from tests.properties import examples

TEXTS = st.text(max_size=12)
NAMES = st.text("abc-", min_size=1, max_size=8)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | TEXTS,
    lambda values: st.lists(values, max_size=3) | st.dictionaries(NAMES, values, max_size=3),
    max_leaves=6,
)
METADATA = st.none() | st.dictionaries(NAMES, JSON, min_size=1, max_size=3)
FILES = {"filename": TEXTS, "media_type": TEXTS, "metadata": METADATA}
PARTS = st.one_of(
    st.builds(Part, text=TEXTS, metadata=METADATA),
    st.builds(Part, data=JSON, metadata=METADATA),
    st.builds(Part, raw=st.binary(max_size=9), **FILES),
    st.builds(Part, url=TEXTS, **FILES),
)
NAMED_PARTS = st.tuples(PARTS, TEXTS, TEXTS).map(
    lambda drawn: replace(drawn[0], filename=drawn[1], media_type=drawn[2])
)
LISTS = st.lists(TEXTS, max_size=2).map(tuple)


def messages(parts: st.SearchStrategy[Part] = PARTS) -> st.SearchStrategy[Message]:
    return st.builds(
        Message,
        message_id=NAMES,
        role=st.sampled_from(Role),
        parts=st.lists(parts, min_size=1, max_size=3).map(tuple),
        context_id=TEXTS,
        task_id=TEXTS,
        metadata=METADATA,
        extensions=LISTS,
        reference_task_ids=LISTS,
    )


STATUSES = st.builds(
    TaskStatus,
    state=st.sampled_from(TaskState),
    message=st.none() | messages(),
    timestamp=st.sampled_from(["", "2026-01-01T00:00:00.000Z"]),
)
ARTIFACTS = st.builds(
    Artifact,
    artifact_id=NAMES,
    parts=st.lists(PARTS, max_size=3).map(tuple),
    name=TEXTS,
    description=TEXTS,
    metadata=METADATA,
    extensions=LISTS,
)
TASKS = st.builds(
    Task,
    id=NAMES,
    status=STATUSES,
    context_id=NAMES,
    artifacts=st.lists(ARTIFACTS, max_size=2).map(tuple),
    history=st.lists(messages(), max_size=2).map(tuple),
    metadata=METADATA,
)
STREAMED = st.one_of(
    st.builds(StreamResponse, task=TASKS),
    st.builds(StreamResponse, message=messages()),
    st.builds(
        StreamResponse,
        status_update=st.builds(
            TaskStatusUpdate, task_id=NAMES, context_id=NAMES, status=STATUSES, metadata=METADATA
        ),
    ),
    st.builds(
        StreamResponse,
        artifact_update=st.builds(
            TaskArtifactUpdate,
            task_id=NAMES,
            context_id=NAMES,
            artifact=ARTIFACTS,
            append=st.booleans(),
            last_chunk=st.booleans(),
            metadata=METADATA,
        ),
    ),
)
WEBHOOKS = st.builds(
    PushConfig,
    url=NAMES,
    id=NAMES,
    task_id=NAMES,
    token=TEXTS,
    authentication=st.none() | st.builds(Authentication, scheme=NAMES, credentials=TEXTS),
)
SENDS = st.builds(
    SendRequest,
    message=messages(),
    configuration=st.builds(
        SendConfiguration,
        accepted_output_modes=LISTS,
        task_push_notification_config=st.none()
        | WEBHOOKS.map(lambda config: replace(config, task_id="")),
        history_length=st.none() | st.integers(1, 9),
        return_immediately=st.booleans(),
    ),
    metadata=METADATA,
)
REQUIREMENTS = st.dictionaries(NAMES, LISTS.map(Scopes), max_size=2).map(SecurityRequirement)
SCHEMES = st.one_of(
    st.builds(
        SecurityScheme,
        api_key_security_scheme=st.builds(ApiKeyScheme, location=NAMES, name=NAMES),
    ),
    st.builds(SecurityScheme, http_auth_security_scheme=st.builds(HttpScheme, scheme=NAMES)),
    st.builds(
        SecurityScheme,
        oauth2_security_scheme=st.builds(
            OAuth2Scheme, flows=st.just({"clientCredentials": {"tokenUrl": "u", "scopes": {}}})
        ),
    ),
)
CARDS = st.builds(
    AgentCard,
    name=TEXTS,
    description=TEXTS,
    supported_interfaces=st.lists(
        st.builds(
            AgentInterface,
            url=NAMES,
            protocol_binding=st.sampled_from(["JSONRPC", "HTTP+JSON"]),
            protocol_version=st.just("0.3"),
        ),
        min_size=1,
        max_size=3,
        unique_by=lambda interface: interface.url,
    ).map(tuple),
    version=TEXTS,
    capabilities=st.builds(
        AgentCapabilities,
        streaming=st.none() | st.booleans(),
        push_notifications=st.none() | st.booleans(),
        extended_agent_card=st.none() | st.booleans(),
    ),
    default_input_modes=LISTS,
    default_output_modes=LISTS,
    skills=st.lists(
        st.builds(
            AgentSkill,
            id=NAMES,
            name=TEXTS,
            description=TEXTS,
            tags=LISTS,
            examples=LISTS,
            security_requirements=st.lists(REQUIREMENTS, max_size=1).map(tuple),
        ),
        max_size=2,
    ).map(tuple),
    security_schemes=st.dictionaries(NAMES, SCHEMES, max_size=2),
    security_requirements=st.lists(REQUIREMENTS, max_size=1).map(tuple),
)
OBJECTS = st.one_of(
    messages(),
    TASKS,
    STREAMED,
    WEBHOOKS,
    st.lists(WEBHOOKS, max_size=2).map(lambda configs: PushConfigs(tuple(configs))),
    st.builds(PushRequest, task_id=NAMES, id=TEXTS),
    st.builds(TaskRequest, id=NAMES, history_length=st.none() | st.integers(1, 9)),
    SENDS,
    CARDS,
)


def through(version: Version, thing: A2AObject) -> A2AObject:
    """The object as the other side of a connection reads it."""
    return decode(version, type(thing), json.decode(json.encode(encode(version, thing))))


@settings(max_examples=examples(200), deadline=None)
@given(OBJECTS | messages(NAMED_PARTS))
def test_objects_survive_version_1_0(thing: A2AObject) -> None:
    assert through(Version.V1_0, thing) == thing


@settings(max_examples=examples(200), deadline=None)
@given(OBJECTS)
def test_objects_survive_version_0_3(thing: A2AObject) -> None:
    assert through(Version.V0_3, thing) == thing


@settings(max_examples=examples(200), deadline=None)
@given(OBJECTS)
def test_json_of_0_3_is_the_same_after_a_detour_through_1_0(thing: A2AObject) -> None:
    old = encode(Version.V0_3, thing)
    read = decode(Version.V0_3, type(thing), old)
    assert encode(Version.V0_3, through(Version.V1_0, read)) == old


@settings(max_examples=examples(100), deadline=None)
@given(CARDS)
def test_merged_cards_are_read_as_either_version(card: AgentCard) -> None:
    new = AgentInterface(url="https://new", protocol_binding="JSONRPC", protocol_version="1.0")
    both = replace(card, supported_interfaces=(new, *card.supported_interfaces))
    merged = json.decode(json.encode(encode_card(both)))
    assert decode_card(merged) == both
    assert decode(Version.V0_3, AgentCard, merged) == card


def test_cards_without_an_old_interface_have_no_old_members() -> None:
    card = AgentCard(
        name="n",
        description="d",
        supported_interfaces=(AgentInterface("https://a", "JSONRPC", "1.0"),),
        version="1",
        capabilities=AgentCapabilities(),
        default_input_modes=(),
        default_output_modes=(),
        skills=(),
    )
    assert not {"url", "protocolVersion", "preferredTransport"} & encode_card(card).keys()


TEXT_0_3 = {"kind": "text", "text": "hi"}
MESSAGE_0_3 = {"kind": "message", "messageId": "m", "role": "user", "parts": [TEXT_0_3]}


def test_message_of_0_3_has_the_json_of_1_0_in_the_other_version() -> None:
    message = decode(Version.V0_3, Message, MESSAGE_0_3)
    assert encode(Version.V1_0, message) == {
        "messageId": "m",
        "role": "ROLE_USER",
        "parts": [{"text": "hi"}],
    }


@pytest.mark.parametrize("final", [True, False])
def test_updates_of_0_3_are_final_at_terminal_and_interrupted_states(final: bool) -> None:
    state = TaskState.INPUT_REQUIRED if final else TaskState.WORKING
    update = TaskStatusUpdate(task_id="t", context_id="c", status=TaskStatus(state))
    value = encode(Version.V0_3, StreamResponse(status_update=update))
    assert (value["kind"], value["final"]) == ("status-update", final)


def test_unknown_members_are_ignored() -> None:
    message = decode(Version.V0_3, Message, MESSAGE_0_3 | {"unknown": 1})
    assert message == decode(Version.V0_3, Message, MESSAGE_0_3)


@pytest.mark.parametrize(
    ("version", "value"),
    [
        (Version.V0_3, MESSAGE_0_3 | {"role": "system"}),
        (Version.V1_0, MESSAGE_0_3 | {"role": "ROLE_SYSTEM", "parts": [{"text": "hi"}]}),
        (Version.V0_3, MESSAGE_0_3 | {"parts": [{"kind": "video"}]}),
        (Version.V1_0, {"messageId": "m", "role": "ROLE_USER", "parts": [{}]}),
        (Version.V1_0, {"messageId": "m", "role": "ROLE_USER", "parts": []}),
        (Version.V0_3, {"parts": 1}),
        (Version.V0_3, []),
        (Version.V1_0, None),
    ],
)
def test_unknown_values_and_shapes_are_refused(version: Version, value: Any) -> None:
    with pytest.raises(InvalidParameters):
        decode(version, Message, value)


def test_unknown_states_are_refused() -> None:
    status = {"id": "t", "contextId": "c", "status": {"state": "asleep"}}
    for version in Version:
        with pytest.raises(InvalidParameters):
            decode(version, Task, status)


def test_null_is_absent_except_as_data() -> None:
    part: dict[str, Any] = {"data": None, "filename": None}
    value = {"messageId": "m", "role": "ROLE_USER", "parts": [part], "metadata": None}
    message = decode(Version.V1_0, Message, value)
    assert (message.parts[0].data, message.parts[0].text) == (None, UNSET)


@pytest.mark.parametrize(("text", "version"), [("", "0.3"), ("1.0", "1.0"), ("1.0.3", "1.0")])
def test_no_version_means_0_3_and_patches_do_not_count(text: str, version: str) -> None:
    assert read_version(text) == version


@pytest.mark.parametrize("text", ["2.0", "1", "x", "1.1"])
def test_other_versions_are_refused(text: str) -> None:
    with pytest.raises(VersionNotSupported, match=r"expected 1\.0 or 0\.3"):
        read_version(text)


def test_members_may_be_written_with_underscores() -> None:
    """ProtoJSON: parsers accept both; keys of maps are nobody's names."""
    value = {"id": "t", "history_length": 1, "metadata": {"a_b": 1}}
    request = decode(Version.V1_0, TaskRequest, value)
    assert (request.history_length, request.metadata) == (1, {"a_b": 1})
    schemes = {"schemes": {"my_key": {"list": ["a_b"]}}}
    assert list(decode(Version.V1_0, SecurityRequirement, schemes).schemes) == ["my_key"]
