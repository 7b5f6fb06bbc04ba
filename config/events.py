"""Settings of the events. Their defaults, units and reasons are in `defaults.yaml`."""

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct

from config.value_types import (
    Amount,
    Bytes,
    CalledName,
    Count,
    CronSchedule,
    HttpUrl,
    OptionalEntryPoint,
    OptionalTopicName,
    RedisPrefix,
    RedisUrl,
    Seconds,
    SkillKey,
    SourceName,
    TopicName,
    WebhookSecret,
)


class EventSkill(Struct, frozen=True, forbid_unknown_fields=True):
    """One entry of `events.skills`: a skill that workers claim."""

    description: str = ""
    attempts: Count | None = None  # None: events.attempts
    repeatable: bool = True


class EventWebhook(Struct, frozen=True, forbid_unknown_fields=True):
    """One entry of `events.webhooks`: where completions may be sent."""

    url: HttpUrl
    secret: WebhookSecret
    old_secret: WebhookSecret | None = None  # until receivers know the new one
    private: bool = False

    @property
    def secrets(self) -> tuple[str, ...]:
        return (self.secret, self.old_secret) if self.old_secret else (self.secret,)


class EventInbound(Struct, frozen=True, forbid_unknown_fields=True):
    """One entry of `events.inbound`: webhooks of others that become invocations."""

    skill: CalledName
    secret: WebhookSecret
    principal: str
    old_secret: WebhookSecret | None = None
    arguments: str = "body"
    when: str = ""
    order_key: str = ""
    roles: tuple[str, ...] = ()
    scopes: tuple[str, ...] = ()

    @property
    def secrets(self) -> tuple[str, ...]:
        return (self.secret, self.old_secret) if self.old_secret else (self.secret,)


class EventSchedule(Struct, frozen=True, forbid_unknown_fields=True):
    """One entry of `events.schedules`: an invocation that is accepted at certain times."""

    cron: CronSchedule
    skill: CalledName
    principal: str
    timezone: str = ""
    arguments: Mapping[str, Any] = {}
    roles: tuple[str, ...] = ()
    scopes: tuple[str, ...] = ()


class EventKafka(Struct, frozen=True, forbid_unknown_fields=True):
    servers: tuple[str, ...]
    security: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
    username: str
    password: str
    group: TopicName
    commands: TopicName
    dead_letters: OptionalTopicName
    batch_bytes: Bytes
    principal: str
    roles: tuple[str, ...]
    scopes: tuple[str, ...]


class EventsSettings(Struct, frozen=True, forbid_unknown_fields=True):
    enabled: bool
    concurrency: Amount
    tenant_running: Count
    tenant_open: Count
    tenant_open_bytes: Bytes
    principal_open: Count
    principal_open_bytes: Bytes
    tenant_ended_bytes: Bytes
    principal_ended_bytes: Bytes
    attempts: Count
    backoff_s: Seconds
    backoff_max_s: Seconds
    lease_s: Seconds
    sweep_s: Seconds
    poll_s: Seconds
    approval_poll_s: Seconds
    connection_retry_s: Seconds
    drain_s: Seconds
    wait_s: Seconds
    max_hops: Count
    payload_bytes: Bytes
    result_bytes: Bytes
    retention_s: Seconds
    topics: tuple[TopicName, ...]
    skills: Mapping[SkillKey, EventSkill]
    webhooks: Mapping[SkillKey, EventWebhook]
    inbound: Mapping[SkillKey, EventInbound]
    schedules: Mapping[SourceName, EventSchedule]
    hook: OptionalEntryPoint
    redis_url: RedisUrl
    redis_prefix: RedisPrefix
    kafka: EventKafka
    tasks: tuple[str, ...]
    task_wait_s: Seconds
    answer_s: Amount
    questions: Count
    tenant_questions: Count
    principal_questions: Count
