"""Settings of the notifications. Their defaults, units and reasons are in `defaults.yaml`."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from config.value_types import END, VERBATIM, Amount, Count, File, HostAndPort, Port, Seconds, Share

OptionalHost = Annotated[
    str, Meta(pattern=r"^[^\s/]*" + END, description="a host name or an IP address, or nothing")
]
_ATOM, _LABEL = r"[A-Za-z0-9!#$%&'*+/=^_`{|}~-]+", "[A-Za-z0-9-]+"  # no ?: of encoded words
MAIL_PATTERN = rf"{_ATOM}(\.{_ATOM})*@{_LABEL}(\.{_LABEL})*"  # RFC 5321, section 4.1.2; not quoted
OptionalMail = Annotated[
    str,
    Meta(
        pattern=rf"^({MAIL_PATTERN})?" + END,
        max_length=254,
        description="an address such as gateway@example.com, or nothing",
    ),
]
Password = Annotated[str, Meta(extra=VERBATIM, extra_json_schema=VERBATIM)]


class SmtpSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """`notifications.smtp`: the server that takes mail."""

    host: OptionalHost
    port: Port
    security: Literal["starttls", "tls", "none"]
    user: str
    password: Password
    sender: OptionalMail
    ca_file: File
    timeout_s: Seconds


class NotificationsSettings(Struct, frozen=True, forbid_unknown_fields=True):
    enabled: bool
    check_s: Seconds
    smtp: SmtpSettings
    private_hosts: tuple[HostAndPort, ...]
    tenant_targets: Count
    tenant_incidents: Count
    target_hourly: Count
    give_up_s: Seconds
    keep_days: Count
    budget_share: Share
    certificate_days: Amount
    connection_days: Amount
