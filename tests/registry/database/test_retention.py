"""Whatever grows is swept: each table with times is named here, with what deletes its rows."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
TABLE = re.compile(r"^CREATE TABLE (\w+) \((.*?)^\)", re.DOTALL | re.MULTILINE)
TIME = re.compile(r"\b(?:timestamptz|date)\b")

# The module that deletes rows by their time or number.
SWEPT = {
    "console_session_t": "gateway/console/sessions.py",
    "a2a_task_t": "gateway/wings/a2a/task_store.py",
    "agent_conversation_t": "gateway/wings/agent/conversation_and_run_store.py",
    "agent_usage_t": "gateway/wings/agent/conversation_and_run_store.py",
    "invocation_t": "gateway/wings/events/sweeper.py",
    "invocation_attempt_t": "gateway/wings/events/sweeper.py",
    "invocation_question_t": "gateway/wings/events/sweeper.py",
    "outbox_t": "gateway/wings/events/sweeper.py",
    "knowledge_extracted_t": "gateway/wings/knowledge/background_extraction.py",
    "knowledge_spent_t": "gateway/wings/knowledge/background_extraction.py",
    "knowledge_version_t": "gateway/wings/knowledge/documents.py",
    "code_run_t": "gateway/wings/code/stored_runs.py",
    "librarian_answer_t": "gateway/wings/librarian/part_answers.py",
    "librarian_run_t": "gateway/wings/librarian/research_runs.py",
    "librarian_question_t": "gateway/wings/librarian/shown_passages.py",
    "memory_t": "gateway/wings/memory/retention.py",
    "memory_owner_t": "gateway/wings/memory/retention.py",
    "job_t": "registry/jobs/store.py",
    "skill_version_t": "registry/skills/store.py",
    "entity_embedding_t": "registry/migrations/0006_embeddings.sql",
    "embedding_task_t": "registry/embedding/queue.py",
    "usage_request_t": "registry/search/usage_log.py",
    "cost_t": "registry/costs/daily_costs.py",
    "revocation_t": "registry/access/revocations.py",
    "login_key_t": "registry/login/signing_keys.py",
    "login_failure_t": "registry/login/password_users.py",
    "login_client_t": "registry/login/registered_clients.py",
    **dict.fromkeys(
        ("login_consent_t", "login_attempt_t", "login_t", "login_grant_t", "login_replay_t"),
        "registry/login/logins_and_grants.py",
    ),
    **dict.fromkeys(
        ("connection_ticket_t", "connection_attempt_t"), "registry/connections/connect_links.py"
    ),
    "approval_t": "registry/access/approvals.py",
    "notification_incident_t": "gateway/wings/notifications/store.py",
    "command_idempotency_t": "gateway/state/idempotency.py",
    "state_session_t": "gateway/state/postgres.py",
}
DROPPED = {"audit_t": "partitions of weeks (audit.retention_days)"}
BELOW = {  # rows of these end with those of another table, by a foreign key
    "a2a_push_t": "a2a_task_t",
    "agent_run_t": "agent_conversation_t",
    "approval_call_t": "approval_t",
    "agent_step_t": "agent_run_t",
    "librarian_step_t": "librarian_run_t",
    "login_refresh_t": "login_grant_t",
    "knowledge_extraction_t": "knowledge_document_t",
    "knowledge_index_t": "knowledge_document_t",
    "notification_delivery_t": "notification_incident_t",
}
# As many rows as somebody has made or described, and deletes.
CATALOG = {
    *("host_t", "api_t", "api_version_t", "api_endpoint_t", "tool_t", "tool_param_t", "mcp_item_t"),
    *("tool_alias_t", "skill_t", "skill_tool_t", "skill_dependency_t", "agent_definition_t"),
    *(
        "agent_skill_t",
        "import_failure_t",
        "embedding_model_t",
        "search_doc_t",
        "policy_rule_t",
        "secret_t",
    ),
    *(
        "api_key_t",
        "login_user_t",
        "state_secret_t",
        "webhook_gone_t",
        "librarian_source_t",
        "memory_relation_t",
        "notification_target_t",
    ),
    *("knowledge_collection_t", "knowledge_chunker_t", "knowledge_document_t", "knowledge_alias_t"),
}
BOUNDED = {
    "audit_chain_t": "one row of a chain",
    "toolset_t": "admin.stored_toolsets of each tenant",
    "erasure_t": "kept: reports of erasures, one of each, which name nobody",
    "usage_query_t": "three of each caller and tool; they end with the tool",
    "login_person_t": "one of each person of a provider",
    "connection_t": "connections.per_person of each person",
    "upstream_client_t": "one of each authorization server and source",
    "usage_embedding_t": "one of a tool, with which it ends",
    "subregistry_version_t": "the newest of each listed toolset, by number",
    "notification_turn_t": "one of each gateway's tenant",
    "code_shape_t": "code.learned_results of each principal",
    "memory_tombstone_t": "kept: they say that nothing comes back",
}


def tables() -> dict[str, str]:
    """The tables with times, and their definitions."""
    found: dict[str, str] = {}
    for file in (*ROOT.glob("registry/**/*.sql"), *ROOT.glob("gateway/**/*.sql")):
        if "procrastinate" not in file.name:  # rows of jobs: they end with job_t
            found |= dict(TABLE.findall(file.read_text()))
    return {name: text for name, text in found.items() if TIME.search(text)}


def test_each_table_with_times_is_swept_or_exempt() -> None:
    known = [*SWEPT, *DROPPED, *BELOW, *CATALOG, *BOUNDED]
    assert sorted(known) == sorted(tables())


def test_swept_tables_are_deleted_in_their_module() -> None:
    for table, module in SWEPT.items():
        text = (ROOT / module).read_text()
        assert "DELETE FROM" in text or "OldRows(" in text, (table, module)
        assert table in text, (table, module)


def test_dependent_rows_have_a_cascading_foreign_key() -> None:
    found = tables()
    for table, owner in BELOW.items():
        assert re.search(rf"REFERENCES {owner}\b[^,]*ON DELETE CASCADE", found[table]), table
