-- Tools, their parameters and their former names. Written by registry/sources (imports) and
-- registry/tools (tools that people make, change and disable).

-- Digest of what clients are shown of a tool. A tool without `definition` has the digest of the
-- other columns alone.
CREATE FUNCTION tool_digest(
    name text, title text, description text, input_schema json, output_schema json,
    annotations jsonb
) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN encode(sha256(convert_to(
        json_build_array(name, title, description, input_schema, output_schema, annotations)::text,
        'UTF8')), 'hex');

CREATE FUNCTION tool_digest(
    name text, title text, description text, input_schema json, output_schema json,
    annotations jsonb, definition json
) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN CASE WHEN definition IS NULL
        THEN tool_digest(name, title, description, input_schema, output_schema, annotations)
        ELSE encode(sha256(convert_to(json_build_array(name, title, description, input_schema,
            output_schema, annotations, definition)::text, 'UTF8')), 'hex') END;

CREATE TABLE tool_t (
    host_id                       uuid NOT NULL REFERENCES host_t ON DELETE CASCADE,
    tool_id                       uuid NOT NULL DEFAULT gen_random_uuid(),
    endpoint_id                   uuid,
    source_api_id                 uuid,

    -- what clients are shown
    name                          varchar(128) NOT NULL,
    title                         text,
    description                   text NOT NULL,
    description_source            varchar(32) NOT NULL DEFAULT 'manual',
    description_manual_override   boolean NOT NULL DEFAULT false,
    description_override_ts       timestamptz,
    description_override_user     varchar(126),
    input_schema                  json NOT NULL CHECK (json_typeof(input_schema) = 'object'),
    output_schema                 json CHECK (json_typeof(output_schema) = 'object'),
    annotations                   jsonb NOT NULL DEFAULT '{}'
        CHECK (jsonb_typeof(annotations) = 'object'),
    definition                    json CHECK (json_typeof(definition) = 'object'),
    digest                        char(64) NOT NULL GENERATED ALWAYS AS (tool_digest(
        name, title, description, input_schema, output_schema, annotations, definition)) STORED,

    -- how a call is made
    binding                       jsonb NOT NULL CHECK (binding ? 'type'),
    implementation_type           text NOT NULL GENERATED ALWAYS AS (
        CASE binding ->> 'type' WHEN 'openapi' THEN 'rest' WHEN 'mcp' THEN 'mcp_server'
            WHEN 'function' THEN 'python' WHEN 'script' THEN binding ->> 'language'
            ELSE binding ->> 'type' END) STORED,
    source_protocol               text NOT NULL GENERATED ALWAYS AS (
        CASE binding ->> 'type' WHEN 'openapi' THEN 'openapi' WHEN 'mcp' THEN 'mcp'
            ELSE 'http' END) STORED,
    api_method                    text GENERATED ALWAYS AS (binding ->> 'method') STORED,
    api_endpoint                  text GENERATED ALWAYS AS (
        coalesce(binding ->> 'server', '') || (binding ->> 'path')) STORED,

    -- selection, search and policy
    tags                          text[] NOT NULL DEFAULT '{}',
    toolsets                      text[] NOT NULL DEFAULT '{}',
    tool_metadata                 jsonb,
    routing_domain                varchar(128),
    semantic_namespace            varchar(128),
    semantic_weight               real NOT NULL DEFAULT 1.0,
    sensitivity_tier              varchar(64),
    cost_tier                     varchar(32) CHECK (cost_tier IN ('low', 'medium', 'high')),
    target_personas               text,

    -- life cycle
    version                       varchar(20) NOT NULL DEFAULT '1.0.0',
    lifecycle_status              varchar(32) NOT NULL DEFAULT 'active'
        CHECK (lifecycle_status IN ('active', 'deprecated', 'retired')),
    disabled                      boolean NOT NULL DEFAULT false,
    pin                           json CHECK (json_typeof(pin) = 'object'),
    held                          json CHECK (json_typeof(held) = 'object'),

    aggregate_version             bigint NOT NULL DEFAULT 1,
    active                        boolean NOT NULL DEFAULT true,
    update_ts                     timestamptz NOT NULL DEFAULT current_timestamp,
    update_user                   varchar(126) NOT NULL DEFAULT session_user,
    PRIMARY KEY (host_id, tool_id),
    FOREIGN KEY (host_id, endpoint_id) REFERENCES api_endpoint_t ON DELETE CASCADE,
    CONSTRAINT tool_source_fk
        FOREIGN KEY (host_id, source_api_id) REFERENCES api_t ON DELETE CASCADE
);
-- Names are unique without regard to case, because some clients fold case.
CREATE UNIQUE INDEX tool_name_uk ON tool_t (host_id, lower(name)) WHERE active;
CREATE INDEX tool_list_ix ON tool_t (host_id, name COLLATE "C") WHERE active OR disabled; -- pages
CREATE UNIQUE INDEX tool_endpoint_uk ON tool_t (host_id, endpoint_id);
CREATE INDEX tool_source_ix ON tool_t (host_id, source_api_id) WHERE source_api_id IS NOT NULL;
COMMENT ON TABLE tool_t IS 'Tools. Not active: gone from the description, or disabled.';
COMMENT ON COLUMN tool_t.endpoint_id IS
    'The operation that the tool was imported from; null: the tool was made by hand.';
COMMENT ON COLUMN tool_t.source_api_id IS
    'The source through which calls of a tool made by hand go; null: they use no source, or '
    'endpoint_id leads to it.';
COMMENT ON COLUMN tool_t.description_source IS
    'manual: written by a person; endpoint_sync: imported.';
COMMENT ON COLUMN tool_t.description_manual_override IS
    'Imports do not overwrite the description.';
COMMENT ON COLUMN tool_t.definition IS
    'Members of the definition of a tool of another MCP server that no other column holds.';
COMMENT ON COLUMN tool_t.digest IS 'SHA-256 of what clients are shown.';
COMMENT ON COLUMN tool_t.binding IS
    'How arguments become a call (schemas/binding.py). implementation_type, source_protocol, '
    'api_method and api_endpoint are derived from it.';
COMMENT ON COLUMN tool_t.toolsets IS
    'Toolsets that the description assigns the tool to, besides those that the settings select.';
COMMENT ON COLUMN tool_t.semantic_weight IS 'Factor of the score in search; 1: neutral.';
COMMENT ON COLUMN tool_t.cost_tier IS
    'Cost of a call as its operator judges it; null: not rated. For people and reports: it neither '
    'ranks nor refuses.';
COMMENT ON COLUMN tool_t.disabled IS
    'Taken out of service by hand; the tool is not active then, whatever its description says.';
COMMENT ON COLUMN tool_t.pin IS
    'The approved definition: name, texts, schemas and hints as the server sent them, with sorted '
    'keys. Null: the source has no pins, or the tool was never approved.';
COMMENT ON COLUMN tool_t.held IS
    'A changed definition that waits for approval, in the form of `pin`. Until then the tool is '
    'not served.';

-- Keeps a disabled tool out of service when an import finds it in the description again.
CREATE FUNCTION tool_stays_disabled() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.active := false;
    RETURN NEW;
END $$;
CREATE TRIGGER tool_stays_disabled BEFORE UPDATE ON tool_t
    FOR EACH ROW WHEN (NEW.disabled AND NEW.active)
    EXECUTE FUNCTION tool_stays_disabled();

CREATE TABLE tool_param_t (
    host_id            uuid NOT NULL,
    param_id           uuid NOT NULL DEFAULT gen_random_uuid(),
    tool_id            uuid NOT NULL,
    name               text NOT NULL,
    param_type         text NOT NULL,
    required           boolean NOT NULL,
    default_value      json,
    description        text,
    validation_schema  json NOT NULL,
    order_index        integer NOT NULL,
    aggregate_version  bigint NOT NULL DEFAULT 1,
    active             boolean NOT NULL DEFAULT true,
    update_ts          timestamptz NOT NULL DEFAULT current_timestamp,
    update_user        varchar(126) NOT NULL DEFAULT session_user,
    PRIMARY KEY (host_id, param_id),
    FOREIGN KEY (host_id, tool_id) REFERENCES tool_t ON DELETE CASCADE
);
CREATE INDEX tool_param_tool_ix ON tool_param_t (host_id, tool_id, order_index);
COMMENT ON TABLE tool_param_t IS
    'Top-level properties of tool_t.input_schema, one row each, for people and reports. Derived: a '
    'trigger rewrites the rows in the statement that writes the schema, no request reads them, and '
    'edits are lost.';
COMMENT ON COLUMN tool_param_t.param_type IS 'JSON Schema type; any: the schema states none.';
COMMENT ON COLUMN tool_param_t.order_index IS 'Position among the properties, from 0.';

-- JSON Schema type of a property: its `type`, or that of the local $ref. The first that is not null
-- of several types; `any` where none is stated.
CREATE FUNCTION property_type(property json, root json) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    WITH stated (type) AS (
        SELECT coalesce(
            property -> 'type',
            root -> '$defs' -> substring(property ->> '$ref' FROM '^#/\$defs/(.*)$') -> 'type')
    )
    SELECT coalesce(
        CASE json_typeof(type)
            WHEN 'string' THEN type #>> '{}'
            WHEN 'array' THEN (
                SELECT member FROM json_array_elements_text(type) AS member
                WHERE member <> 'null' LIMIT 1)
        END, 'any')
    FROM stated;
END;

CREATE FUNCTION tool_param_derive() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' THEN
        DELETE FROM tool_param_t WHERE host_id = NEW.host_id AND tool_id = NEW.tool_id;
    END IF;
    IF json_typeof(NEW.input_schema -> 'properties') = 'object' THEN
        INSERT INTO tool_param_t (host_id, tool_id, name, param_type, required, default_value,
            description, validation_schema, order_index)
        SELECT NEW.host_id, NEW.tool_id, key, property_type(value, NEW.input_schema),
            coalesce((NEW.input_schema -> 'required')::jsonb ? key, false),
            value -> 'default', value ->> 'description', value, ordinality - 1
        FROM json_each(NEW.input_schema -> 'properties') WITH ORDINALITY;
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER tool_param_insert AFTER INSERT ON tool_t
    FOR EACH ROW EXECUTE FUNCTION tool_param_derive();
CREATE TRIGGER tool_param_update AFTER UPDATE OF input_schema ON tool_t
    FOR EACH ROW WHEN (NEW.input_schema::text <> OLD.input_schema::text)
    EXECUTE FUNCTION tool_param_derive();

CREATE TABLE tool_alias_t (
    host_id            uuid NOT NULL,
    name               varchar(128) NOT NULL,
    tool_id            uuid NOT NULL,
    since              timestamptz NOT NULL DEFAULT current_timestamp,
    FOREIGN KEY (host_id, tool_id) REFERENCES tool_t ON DELETE CASCADE
);
CREATE UNIQUE INDEX tool_alias_uk ON tool_alias_t (host_id, lower(name));
CREATE INDEX tool_alias_tool_ix ON tool_alias_t (host_id, tool_id);
COMMENT ON TABLE tool_alias_t IS
    'Former names of tools: they can be called and are not listed. An active tool of the same name '
    'takes precedence, and the next import that writes anything deletes the alias.';
