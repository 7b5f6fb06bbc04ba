-- Other MCP servers: what they said of themselves, their prompts and resources, and definitions of
-- tools that wait for approval.

ALTER TABLE api_t ADD COLUMN server jsonb CHECK (jsonb_typeof(server) = 'object');
COMMENT ON COLUMN api_t.server IS
    'What an MCP server said of itself when it was last asked (schemas/mcp/snapshot.py); none for '
    'other kinds.';
COMMENT ON COLUMN api_t.options IS
    'How a hybrid service or an MCP server is reached and shown (schemas/source.py). What is not in '
    'it has its default.';

-- Of a tool without a definition the digest is what it was, so that nobody takes it for changed.
CREATE FUNCTION tool_digest(
    name text, title text, description text, input_schema json, output_schema json,
    annotations jsonb, definition json
) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN CASE WHEN definition IS NULL
        THEN tool_digest(name, title, description, input_schema, output_schema, annotations)
        ELSE encode(sha256(convert_to(json_build_array(name, title, description, input_schema,
            output_schema, annotations, definition)::text, 'UTF8')), 'hex') END;

ALTER TABLE tool_t
    ADD COLUMN definition json CHECK (json_typeof(definition) = 'object'),
    ADD COLUMN pin json CHECK (json_typeof(pin) = 'object'),
    ADD COLUMN held json CHECK (json_typeof(held) = 'object');
-- PostgreSQL 16 cannot change the expression of a column.
ALTER TABLE tool_t
    DROP COLUMN digest,
    ADD COLUMN digest char(64) NOT NULL GENERATED ALWAYS AS (tool_digest(
        name, title, description, input_schema, output_schema, annotations, definition)) STORED;
COMMENT ON COLUMN tool_t.digest IS 'SHA-256 of what a client is shown.';
COMMENT ON COLUMN tool_t.definition IS
    'Of a tool of another MCP server: the members of its definition that no other column has.';
COMMENT ON COLUMN tool_t.pin IS
    'What was approved: name, texts, schemas and hints as their server sent them, with sorted keys. '
    'None: its source has no pins, or it was never approved.';
COMMENT ON COLUMN tool_t.held IS
    'What waits for approval, in the same form. While it does the tool is not served.';

CREATE TABLE mcp_item_t (
    host_id            uuid NOT NULL,
    item_id            uuid NOT NULL DEFAULT gen_random_uuid(),
    api_id             uuid NOT NULL,
    kind               varchar(16) NOT NULL CHECK (kind IN ('prompt', 'resource', 'template')),
    key                text NOT NULL,
    name               text NOT NULL,
    definition         json NOT NULL CHECK (json_typeof(definition) = 'object'),
    eras               varchar(16) NOT NULL DEFAULT 'both'
        CHECK (eras IN ('both', 'handshake', 'stateless')),
    aggregate_version  bigint NOT NULL DEFAULT 1,
    active             boolean NOT NULL DEFAULT true,
    update_ts          timestamptz NOT NULL DEFAULT current_timestamp,
    update_user        varchar(126) NOT NULL DEFAULT session_user,
    PRIMARY KEY (host_id, item_id),
    UNIQUE (host_id, api_id, kind, key),
    -- Checked when a statement ends: two of them may swap their names.
    UNIQUE (host_id, kind, name) DEFERRABLE,
    FOREIGN KEY (host_id, api_id) REFERENCES api_t ON DELETE CASCADE
);
COMMENT ON TABLE mcp_item_t IS
    'Prompts, resources and resource templates of other MCP servers, as those list them.';
COMMENT ON COLUMN mcp_item_t.key IS 'Name, URI or URI template at its server.';
COMMENT ON COLUMN mcp_item_t.name IS 'The same as clients know it.';
COMMENT ON COLUMN mcp_item_t.active IS 'Not active: taken out of service by hand.';

-- As before, and: a tool that is held back, or no longer, is a change.
CREATE OR REPLACE FUNCTION registry_notify() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        PERFORM pg_notify('toolgate_registry', host_id::text)
        FROM (SELECT DISTINCT host_id FROM new_row) AS changed;
    ELSIF TG_OP = 'DELETE' THEN
        PERFORM pg_notify('toolgate_registry', host_id::text)
        FROM (SELECT DISTINCT host_id FROM old_row) AS changed;
    ELSIF TG_TABLE_NAME = 'tool_t' THEN
        PERFORM pg_notify('toolgate_registry', host_id::text)
        FROM (
            SELECT DISTINCT new_row.host_id
            FROM new_row JOIN old_row USING (host_id, tool_id)
            WHERE new_row.digest <> old_row.digest
               OR new_row.binding <> old_row.binding
               OR new_row.active <> old_row.active
               OR new_row.tags <> old_row.tags
               OR new_row.lifecycle_status <> old_row.lifecycle_status
               OR (new_row.held IS NULL) <> (old_row.held IS NULL)
               OR (new_row.endpoint_id, new_row.routing_domain, new_row.semantic_namespace,
                   new_row.sensitivity_tier) IS DISTINCT FROM
                  (old_row.endpoint_id, old_row.routing_domain, old_row.semantic_namespace,
                   old_row.sensitivity_tier)
        ) AS changed;
    ELSE
        PERFORM pg_notify('toolgate_registry', host_id::text)
        FROM (SELECT host_id FROM new_row UNION SELECT host_id FROM old_row) AS changed;
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER mcp_item_notify_insert AFTER INSERT ON mcp_item_t
    REFERENCING NEW TABLE AS new_row
    FOR EACH STATEMENT EXECUTE FUNCTION registry_notify();
CREATE TRIGGER mcp_item_notify_update AFTER UPDATE ON mcp_item_t
    REFERENCING OLD TABLE AS old_row NEW TABLE AS new_row
    FOR EACH STATEMENT EXECUTE FUNCTION registry_notify();
CREATE TRIGGER mcp_item_notify_delete AFTER DELETE ON mcp_item_t
    REFERENCING OLD TABLE AS old_row
    FOR EACH STATEMENT EXECUTE FUNCTION registry_notify();
