"""The Grafana dashboard and the alert rules of Prometheus, in `deploy/`, from the tables below.

`python .ci/boards.py` writes them; tests/deploy/test_boards.py compares them with the tables, and
the metrics and labels of each query with those that a gateway has.
"""

import json
from pathlib import Path
from typing import Any, NamedTuple

import yaml

DEPLOY = Path(__file__).resolve().parents[1] / "deploy"
DASHBOARD = DEPLOY / "grafana" / "toolgate.json"
ALERTS = DEPLOY / "prometheus" / "alerts.yaml"

WINDOW = "$__rate_interval"
HERE = '{job=~"$job", instance=~"$instance"}'
FAILED = 'outcome!~"ok|cancelled|tool_error"'


class Panel(NamedTuple):
    title: str
    queries: dict[str, str]  # by legend
    unit: str = "short"
    kind: str = "timeseries"


ROWS: dict[str, list[Panel]] = {
    "Requests": [
        Panel(
            "Requests per second, by method",
            {"{{method}}": "sum by (method) (rate(toolgate_requests_total{HERE}[WINDOW]))"},
            "reqps",
        ),
        Panel(
            "Requests that did not succeed, by outcome",
            {
                "{{outcome}}": "sum by (outcome) (rate(toolgate_requests_total"
                '{HERE, outcome!="ok"}[WINDOW]))'
            },
            "reqps",
        ),
        Panel(
            "Time of tools/call",
            {
                f"p{share}": f"histogram_quantile(0.{share}, sum by (le) (rate("
                'toolgate_request_seconds_bucket{HERE, method="tools/call"}[WINDOW])))'
                for share in (50, 95, 99)
            },
            "s",
        ),
        Panel(
            "p95 by method",
            {
                "{{method}}": "histogram_quantile(0.95, sum by (le, method) (rate("
                "toolgate_request_seconds_bucket{HERE}[WINDOW])))"
            },
            "s",
        ),
        Panel(
            "Requests per second, by revision",
            {"{{revision}}": "sum by (revision) (rate(toolgate_requests_total{HERE}[WINDOW]))"},
            "reqps",
        ),
        Panel(
            "Refused by a limit",
            {"{{limit}}": "sum by (limit) (rate(toolgate_refusals_total{HERE}[WINDOW]))"},
            "reqps",
        ),
    ],
    "State": [
        Panel("Ready", {"{{instance}}": "toolgate_ready{HERE}"}, kind="stat"),
        Panel("Database", {"{{instance}}": "toolgate_database_up{HERE}"}, kind="stat"),
        Panel("Tools", {"tools": "max(toolgate_tools{HERE})"}, kind="stat"),
        Panel("Sessions", {"{{instance}}": "toolgate_sessions{HERE}"}),
        Panel("Streams", {"{{instance}}": "toolgate_streams{HERE}"}),
        Panel("Lag of the event loop", {"{{instance}}": "toolgate_loop_lag_seconds{HERE}"}, "s"),
        Panel(
            "Memory",
            {
                "{{instance}}": "toolgate_memory_bytes{HERE}",
                "bodies {{instance}}": "toolgate_body_bytes{HERE}",
            },
            "bytes",
        ),
        Panel("Calls that wait for their client", {"waiting": "toolgate_parked_calls{HERE}"}),
    ],
    "Calls (metrics.tools)": [
        Panel(
            "Calls per second, by source",
            {"{{source}}": "sum by (source) (rate(toolgate_source_calls_total{HERE}[WINDOW]))"},
            "reqps",
        ),
        Panel(
            "Calls that did not succeed, by source",
            {
                "{{source}}": "sum by (source) (rate(toolgate_source_calls_total"
                '{HERE, outcome!="ok"}[WINDOW]))'
            },
            "reqps",
        ),
        Panel(
            "p95 by source",
            {
                "{{source}}": "histogram_quantile(0.95, sum by (le, source) (rate("
                "toolgate_source_call_seconds_bucket{HERE}[WINDOW])))"
            },
            "s",
        ),
        Panel(
            "Tools with the most calls",
            {
                "{{source}} {{tool}}": "topk(20, sum by (source, tool) (rate("
                "toolgate_tool_calls_total{HERE}[WINDOW])))"
            },
            "reqps",
        ),
        Panel(
            "Slowest tools, p95",
            {
                "{{source}} {{tool}}": "topk(20, histogram_quantile(0.95, sum by "
                "(le, source, tool) (rate(toolgate_tool_call_seconds_bucket{HERE}[WINDOW]))))"
            },
            "s",
        ),
        Panel(
            "Tools with the most errors",
            {
                "{{source}} {{tool}}": "topk(20, sum by (source, tool) (rate("
                'toolgate_tool_calls_total{HERE, outcome!="ok"}[WINDOW])))'
            },
            "reqps",
        ),
    ],
    "Chat models": [
        Panel(
            "Requests, by strategy and outcome",
            {
                "{{strategy}} {{outcome}}": "sum by (strategy, outcome) "
                "(rate(toolgate_model_requests_total{HERE}[WINDOW]))"
            },
            "reqps",
        ),
        Panel(
            "Tokens per second",
            {
                "{{strategy}} {{kind}}": "sum by (strategy, kind) "
                "(rate(toolgate_model_tokens_total{HERE}[WINDOW]))"
            },
        ),
        Panel(
            "Money per hour",
            {
                "{{strategy}} {{currency}}": "3600 * sum by (strategy, currency) "
                "(rate(toolgate_model_cost_total{HERE}[WINDOW]))"
            },
        ),
        Panel(
            "Time until the first part of an answer, p95",
            {
                "{{strategy}}": "histogram_quantile(0.95, sum by (le, strategy) (rate("
                "toolgate_model_first_token_seconds_bucket{HERE}[WINDOW])))"
            },
            "s",
        ),
        Panel(
            "Time of requests to chat models, p95",
            {
                "{{strategy}} {{model}}": "histogram_quantile(0.95, sum by (le, strategy, model) "
                "(rate(toolgate_model_request_seconds_bucket{HERE}[WINDOW])))"
            },
            "s",
        ),
        Panel(
            "Tokens of a request, p95",
            {
                "{{strategy}} {{kind}}": "histogram_quantile(0.95, sum by (le, strategy, kind) "
                "(rate(toolgate_model_request_tokens_bucket{HERE}[WINDOW])))"
            },
        ),
    ],
    "Services": [
        Panel(
            "Circuit breakers (1: open)", {"{{source}}": "max by (source) (toolgate_breaker{HERE})"}
        ),
        Panel(
            "Answers of hooks, by outcome",
            {
                "{{hook}} {{outcome}}": "sum by (hook, outcome) "
                "(rate(toolgate_hook_calls_total{HERE}[WINDOW]))"
            },
            "reqps",
        ),
        Panel("MCP servers up", {"{{source}}": "min by (source) (toolgate_mcp_server_up{HERE})"}),
        Panel(
            "Sessions at MCP servers",
            {"{{source}}": "sum by (source) (toolgate_mcp_sessions{HERE})"},
        ),
        Panel(
            "Requests to MCP servers",
            {
                "{{source}}": "sum by (source) (rate(toolgate_mcp_requests_total{HERE}[WINDOW]))",
                "failed {{source}}": "sum by (source) "
                "(rate(toolgate_mcp_failures_total{HERE}[WINDOW]))",
            },
            "reqps",
        ),
        Panel(
            "Time of requests to MCP servers, p95",
            {
                "{{source}} {{method}}": "histogram_quantile(0.95, sum by (le, source, method) "
                "(rate(toolgate_mcp_request_seconds_bucket{HERE}[WINDOW])))"
            },
            "s",
        ),
        Panel(
            "Answers unlike their schema",
            {
                "{{source}}": "sum by (source) "
                "(rate(toolgate_answer_mismatches_total{HERE}[WINDOW]))"
            },
        ),
        Panel(
            "Requests to connect an account (per minute)",
            {
                "{{source}}: {{reason}}": "60 * sum by (source, reason) "
                "(rate(toolgate_connection_requests_total{HERE}[WINDOW]))"
            },
        ),
        Panel(
            "Accounts that people have connected",
            {"{{source}}: {{state}}": "max by (source, state) (toolgate_connections{HERE})"},
        ),
        Panel(
            "Renewals of people's tokens (per minute)",
            {
                "{{source}}: {{outcome}}": "60 * sum by (source, outcome) "
                "(rate(toolgate_connection_renewals_total{HERE}[WINDOW]))"
            },
        ),
    ],
    "Jobs and wings": [
        Panel("Jobs that have not ended", {"{{state}}": "max by (state) (toolgate_jobs{HERE})"}),
        Panel(
            "Jobs that ended",
            {"{{state}}": "sum by (state) (rate(toolgate_jobs_ended_total{HERE}[WINDOW]))"},
        ),
        Panel(
            "Memories given",
            {
                "{{scope}} {{outcome}}": "sum by (scope, outcome) "
                "(rate(toolgate_memory_writes_total{HERE}[WINDOW]))"
            },
        ),
        Panel(
            "Searches of memories",
            {
                "{{outcome}}": "sum by (outcome) "
                "(rate(toolgate_memory_searches_total{HERE}[WINDOW]))"
            },
        ),
        Panel(
            "What waits of memories",
            {
                "sessions {{instance}}": "toolgate_memory_sessions_waiting{HERE}",
                "uses {{instance}}": "toolgate_memory_uses_waiting{HERE}",
            },
        ),
        Panel(
            "Approvals that wait, and open incidents",
            {
                "approvals": "max(toolgate_approvals_waiting{HERE})",
                "{{subject}}": "max by (subject) (toolgate_incidents{HERE})",
            },
        ),
        Panel("Running invocations", {"{{instance}}": "toolgate_invocations_running{HERE}"}),
        Panel(
            "Deliveries that ended, and leases and deadlines that were over",
            {
                "{{kind}}": "sum by (kind) (rate(toolgate_invocation_outcomes_total"
                "{HERE}[WINDOW]))",
                "over: {{kind}}": "sum by (kind) (rate(toolgate_invocations_swept_total"
                "{HERE}[WINDOW]))",
            },
        ),
        Panel(
            "Documents given",
            {
                "{{outcome}}": "sum by (outcome) "
                "(rate(toolgate_knowledge_documents_total{HERE}[WINDOW]))",
                "chunks": "sum(rate(toolgate_knowledge_chunks_total{HERE}[WINDOW]))",
            },
        ),
        Panel(
            "Characters of passages of a query, p95",
            {
                "{{mode}}": "histogram_quantile(0.95, sum by (le, mode) (rate("
                "toolgate_knowledge_context_characters_bucket{HERE}[WINDOW])))"
            },
        ),
        Panel(
            "Largest shares of quotas that are used",
            {
                "{{quota}}": "max by (quota) (toolgate_invocations_quota_share{HERE})",
                "of documents: {{quota}}": "max by (quota) (toolgate_knowledge_quota_share{HERE})",
            },
            "percentunit",
        ),
    ],
    "Behind the requests": [
        Panel(
            "Audit records",
            {"{{outcome}}": "sum by (outcome) (rate(toolgate_audit_records_total{HERE}[WINDOW]))"},
        ),
        Panel("Audit records that wait", {"{{instance}}": "toolgate_audit_queued_records{HERE}"}),
        Panel(
            "Audit records on disk", {"{{instance}}": "toolgate_audit_spool_bytes{HERE}"}, "bytes"
        ),
        Panel("Delay of audit records", {"{{instance}}": "toolgate_audit_lag_seconds{HERE}"}, "s"),
        Panel(
            "Texts to embed",
            {"{{purpose}} {{status}}": "max by (purpose, status) (toolgate_embedding_tasks{HERE})"},
        ),
        Panel(
            "Searches on the replica (search.replica_url)",
            {
                "replica {{instance}}": "toolgate_search_replica_reads{HERE}",
                "primary {{instance}}": "toolgate_search_replica_fallbacks{HERE}",
            },
        ),
        Panel(
            "Spans", {"{{outcome}}": "sum by (outcome) (rate(toolgate_spans_total{HERE}[WINDOW]))"}
        ),
        Panel(
            "Legacy payloads",
            {"{{path}}": "sum by (path) (rate(toolgate_legacy_requests_total{HERE}[WINDOW]))"},
            "reqps",
        ),
    ],
}


class Alert(NamedTuple):
    name: str
    query: str
    lasting: str
    severity: str
    summary: str


RULES = [
    Alert(
        "ToolgateNotReady", "toolgate_ready == 0", "2m", "critical",
        "{{ $labels.instance }} takes no requests.",
    ),
    Alert(
        "ToolgateDatabaseAway", "toolgate_database_up == 0", "5m", "warning",
        "{{ $labels.instance }} has lost its database: calls go on, changes and searches do not.",
    ),
    Alert(
        "ToolgateErrors",
        f"sum by (job) (rate(toolgate_requests_total{{{FAILED}}}[5m])) "
        "/ sum by (job) (rate(toolgate_requests_total[5m])) > 0.05",
        "10m", "warning", "More than 5 % of the requests fail.",
    ),
    Alert(
        "ToolgateCrashes", 'increase(toolgate_requests_total{outcome="crashed"}[10m]) > 0', "0m",
        "warning", "A request ran into an unexpected error; the log has `unexpected_error`.",
    ),
    Alert(
        "ToolgateSlow",
        "histogram_quantile(0.95, sum by (job, le) "
        '(rate(toolgate_request_seconds_bucket{method="tools/call"}[5m]))) > 5',
        "15m", "warning", "One in twenty calls takes more than 5 s.",
    ),
    Alert(
        "ToolgateModelsFail",
        'sum by (job, strategy) (rate(toolgate_model_requests_total{outcome!="ok"}[10m])) '
        "/ sum by (job, strategy) (rate(toolgate_model_requests_total[10m])) > 0.2",
        "10m", "warning", "More than 20 % of the requests to {{ $labels.strategy }} fail.",
    ),
    Alert(
        "ToolgateOverloaded", "toolgate_loop_lag_seconds > 0.5", "5m", "warning",
        "{{ $labels.instance }} answers late: its core is busy.",
    ),
    Alert(
        "ToolgateBreakerOpen", "max by (job, source) (toolgate_breaker) >= 1", "5m", "warning",
        "Calls of {{ $labels.source }} are refused, as it fails.",
    ),
    Alert(
        "ToolgateMcpServerDown", "min by (job, source) (toolgate_mcp_server_up) == 0", "10m",
        "warning", "The MCP server {{ $labels.source }} cannot be reached.",
    ),
    Alert(
        "ToolgateAuditDropped",
        'increase(toolgate_audit_records_total{outcome="dropped"}[10m]) > 0',
        "0m", "critical", "Records of the audit log were lost.",
    ),
    Alert(
        "ToolgateAuditBehind", "toolgate_audit_queued_records > 5000", "10m", "warning",
        "Records of the audit log wait for the database.",
    ),
    Alert(
        "ToolgateJobsFail",
        "sum by (job, operation) (increase(toolgate_jobs_failed_total[1h])) > 0", "0m", "warning",
        "Jobs or schedules of {{ $labels.operation }} fail: `toolgate jobs list` tells why.",
    ),
    Alert(
        "ToolgateApprovalsWait", "max by (job) (toolgate_approvals_waiting) > 0", "15m", "warning",
        "Calls wait for an approval: the console's page of approvals lists them.",
    ),
    Alert(
        "ToolgateCertificateEnds",
        "min by (job) (toolgate_certificate_end_seconds) - time() < 14 * 86400", "1h", "warning",
        "The TLS certificate of {{ $labels.job }} ends within two weeks.",
    ),
    Alert(
        "ToolgateConnectionsEnded",
        'max by (job, source) (toolgate_connections{state="expired"}) > 0', "15m", "info",
        "People have to connect their accounts at {{ $labels.source }} again.",
    ),
    Alert(
        "ToolgateNotificationsFail",
        'sum by (job) (increase(toolgate_notifications_total{outcome="failed"}[1h])) > 0', "0m",
        "warning", "Targets do not take notifications: `toolgate notifications list` tells why.",
    ),
    Alert(
        "ToolgateEmbeddingsFail", 'max by (job) (toolgate_embedding_tasks{status="failed"}) > 0',
        "30m", "info", "Some tools have no embedding: `toolgate embed status` tells why.",
    ),
]  # fmt: skip


def expression(query: str) -> str:
    """A query with the selectors of the dashboard."""
    inner = HERE[1:-1]
    whole = query.replace("{HERE,", f"{{{inner},").replace("{HERE}", HERE)
    return whole.replace("WINDOW", WINDOW)


def dashboard() -> dict[str, Any]:
    panels: list[dict[str, Any]] = []
    for title, members in ROWS.items():
        panels.append({"type": "row", "title": title, "collapsed": False, "panels": []})
        panels += [panel(one) for one in members]
    return {
        "uid": "toolgate",
        "title": "Toolgate",
        "tags": ["toolgate", "mcp"],
        "schemaVersion": 39,
        "timezone": "browser",
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {"list": [source(), *(variable(name) for name in ("job", "instance"))]},
        "panels": placed(panels),
    }


def panel(one: Panel) -> dict[str, Any]:
    return {
        "type": one.kind,
        "title": one.title,
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "fieldConfig": {"defaults": {"unit": one.unit, "min": 0}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + number), "expr": expression(query), "legendFormat": legend}
            for number, (legend, query) in enumerate(one.queries.items())
        ],
    }


def placed(panels: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The panels, two beside each other, each row below a title."""
    top = left = 0
    found = []
    for number, one in enumerate(panels, 1):
        if one["type"] == "row":
            top, left = top + (8 if left else 0), 0
            found.append({**one, "id": number, "gridPos": {"x": 0, "y": top, "w": 24, "h": 1}})
            top += 1
            continue
        found.append({**one, "id": number, "gridPos": {"x": left, "y": top, "w": 12, "h": 8}})
        top, left = (top + 8, 0) if left else (top, 12)
    return found


def source() -> dict[str, Any]:
    return {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Source"}


def variable(name: str) -> dict[str, Any]:
    within = '{job=~"$job"}' if name == "instance" else ""
    return {
        "name": name,
        "type": "query",
        "label": name.capitalize(),
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "query": f"label_values(toolgate_ready{within}, {name})",
        "includeAll": True,
        "multi": True,
        "refresh": 2,
    }


def alerts() -> dict[str, Any]:
    rules = [
        {
            "alert": one.name,
            "expr": one.query,
            "for": one.lasting,
            "labels": {"severity": one.severity},
            "annotations": {"summary": one.summary},
        }
        for one in RULES
    ]
    return {"groups": [{"name": "toolgate", "rules": rules}]}


def texts() -> dict[Path, str]:
    """The contents of the files."""
    rules = yaml.safe_dump(alerts(), sort_keys=False, allow_unicode=True, width=100)
    head = "# Made by `make boards`; do not edit.\n"
    return {DASHBOARD: json.dumps(dashboard(), indent=2) + "\n", ALERTS: head + rules}


if __name__ == "__main__":
    for file, text in texts().items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
