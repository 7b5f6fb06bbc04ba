-- Queries that led to successful calls, which raise the tools called (`search.feedback`) or make sets
-- for evaluations (`search.usage_log`). Written by registry/search/feedback.py and usage_log.py.

CREATE TABLE usage_query_t (
    host_id            uuid NOT NULL,
    entity_type        varchar(32) NOT NULL,
    entity_id          uuid NOT NULL,
    model              varchar(128) NOT NULL,
    principal          char(32) NOT NULL,
    slot               smallint NOT NULL CHECK (slot BETWEEN 0 AND 2),
    embedding          embedding_vector NOT NULL,
    update_ts          timestamptz NOT NULL DEFAULT current_timestamp,
    PRIMARY KEY (host_id, entity_type, entity_id, model, principal, slot)
);
COMMENT ON TABLE usage_query_t IS
    'Last three queries of each caller that were followed by a successful call of the entity, as '
    'vectors. Three, so that no caller outweighs the others.';
COMMENT ON COLUMN usage_query_t.principal IS 'MD5 of the name of the caller.';

CREATE TABLE usage_embedding_t (
    host_id            uuid NOT NULL,
    entity_type        varchar(32) NOT NULL,
    entity_id          uuid NOT NULL,
    model              varchar(128) NOT NULL,
    embedding          embedding_vector NOT NULL,
    principals         integer NOT NULL,
    update_ts          timestamptz NOT NULL DEFAULT current_timestamp,
    PRIMARY KEY (host_id, entity_type, entity_id, model)
);
COMMENT ON TABLE usage_embedding_t IS
    'Mean of the callers'' mean vectors, of length 1. Derived from usage_query_t.';
COMMENT ON COLUMN usage_embedding_t.principals IS 'Number of callers.';

-- Deletes the queries of deleted entities.
CREATE FUNCTION usage_forget(kind text, host_ids uuid[], entity_ids uuid[]) RETURNS void
    LANGUAGE plpgsql
    SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
BEGIN
    DELETE FROM usage_query_t AS used
    USING unnest(host_ids, entity_ids) AS gone (host_id, entity_id)
    WHERE (used.host_id, used.entity_type, used.entity_id) = (gone.host_id, kind, gone.entity_id);
    DELETE FROM usage_embedding_t AS used
    USING unnest(host_ids, entity_ids) AS gone (host_id, entity_id)
    WHERE (used.host_id, used.entity_type, used.entity_id) = (gone.host_id, kind, gone.entity_id);
END $$;

CREATE TABLE usage_request_t (
    host_id            uuid NOT NULL,
    request_id         uuid NOT NULL,
    caller             char(32) NOT NULL,
    query              text NOT NULL,
    called             uuid[] NOT NULL,
    asked_ts           timestamptz NOT NULL DEFAULT current_timestamp,
    PRIMARY KEY (host_id, request_id)
);
CREATE INDEX usage_request_asked_ix ON usage_request_t (host_id, asked_ts);
COMMENT ON TABLE usage_request_t IS
    'Requests of search_tools, personal data masked, and the tools that were called with success '
    'after them (`search.usage_log`): sets for `toolgate search eval --from-usage`.';
COMMENT ON COLUMN usage_request_t.caller IS 'MD5 of the name of the caller.';
