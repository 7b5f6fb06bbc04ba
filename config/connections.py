"""Settings of connections: accounts of people at the services behind the gateway."""

from msgspec import Struct

from config.value_types import Bytes, Count, Seconds


class ConnectionsSettings(Struct, frozen=True, forbid_unknown_fields=True):
    ticket_s: Seconds
    tickets: Count
    per_person: Count
    attempt_s: Seconds
    idle_s: Seconds
    cached: Count
    renew_timeout_s: Seconds
    refused_token_s: Seconds
    scope_rounds: Count
    discovery_s: Seconds
    request_s: Seconds
    document_bytes: Bytes
    cache_s: Seconds
    refused_s: Seconds
    private_networks: bool
