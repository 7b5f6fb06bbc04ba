-- Tenants, sources, endpoints and tools. Columns follow the design of light-portal's agent tools.
--
-- Schemas and other JSON that a model reads are `json`, not `jsonb`: the order of properties is
-- part of what it reads, and jsonb sorts keys. What only we read is jsonb.
-- Everything is keyed by host_id, the tenant, first.

CREATE EXTENSION IF NOT EXISTS vector;

CREATE TABLE host_t (
    host_id            uuid PRIMARY KEY,
    name               varchar(126) NOT NULL,
    aggregate_version  bigint NOT NULL DEFAULT 1,
    active             boolean NOT NULL DEFAULT true,
    update_ts          timestamptz NOT NULL DEFAULT current_timestamp,
    update_user        varchar(126) NOT NULL DEFAULT session_user
);

CREATE TABLE api_t (
    host_id            uuid NOT NULL REFERENCES host_t ON DELETE CASCADE,
    api_id             uuid NOT NULL DEFAULT gen_random_uuid(),
    name               varchar(63) NOT NULL,
    kind               varchar(32) NOT NULL,
    location           text NOT NULL,
    base_url           text,
    base_url_trusted   boolean NOT NULL DEFAULT false,
    include            text[] NOT NULL DEFAULT '{}',
    exclude            text[] NOT NULL DEFAULT '{}',
    aggregate_version  bigint NOT NULL DEFAULT 1,
    active             boolean NOT NULL DEFAULT true,
    update_ts          timestamptz NOT NULL DEFAULT current_timestamp,
    update_user        varchar(126) NOT NULL DEFAULT session_user,
    PRIMARY KEY (host_id, api_id),
    UNIQUE (host_id, name)
);
COMMENT ON TABLE api_t IS 'A source: where tools come from and where their calls go.';

CREATE TABLE api_version_t (
    host_id            uuid NOT NULL,
    api_version_id     uuid NOT NULL DEFAULT gen_random_uuid(),
    api_id             uuid NOT NULL,
    title              text,
    api_version        text,
    digest             varchar(128),
    document           bytea,
    current            boolean NOT NULL DEFAULT true,
    aggregate_version  bigint NOT NULL DEFAULT 1,
    active             boolean NOT NULL DEFAULT true,
    created_ts         timestamptz NOT NULL DEFAULT current_timestamp,
    update_ts          timestamptz NOT NULL DEFAULT current_timestamp,
    update_user        varchar(126) NOT NULL DEFAULT session_user,
    PRIMARY KEY (host_id, api_version_id),
    FOREIGN KEY (host_id, api_id) REFERENCES api_t ON DELETE CASCADE
);
CREATE UNIQUE INDEX api_version_current_uk ON api_version_t (host_id, api_id) WHERE current;
CREATE INDEX api_version_api_ix ON api_version_t (host_id, api_id, created_ts);
-- It arrives compressed; compressing it again would only cost time.
ALTER TABLE api_version_t ALTER COLUMN document SET STORAGE EXTERNAL;
COMMENT ON COLUMN api_version_t.digest IS 'Names the document, and the importer that read it.';
COMMENT ON COLUMN api_version_t.document IS
    'The document, zlib-compressed; kept for the current version only.';

CREATE TABLE api_endpoint_t (
    host_id            uuid NOT NULL,
    endpoint_id        uuid NOT NULL,
    api_id             uuid NOT NULL,
    api_version_id     uuid NOT NULL,
    endpoint           text NOT NULL,
    http_method        text NOT NULL
        GENERATED ALWAYS AS (regexp_replace(endpoint, '^.*@', '')) STORED,
    endpoint_path      text NOT NULL
        GENERATED ALWAYS AS (regexp_replace(endpoint, '@[^@]*$', '')) STORED,
    endpoint_name      varchar(128) NOT NULL,
    endpoint_desc      text NOT NULL,
    digest             char(64) NOT NULL,
    aggregate_version  bigint NOT NULL DEFAULT 1,
    active             boolean NOT NULL DEFAULT true,
    update_ts          timestamptz NOT NULL DEFAULT current_timestamp,
    update_user        varchar(126) NOT NULL DEFAULT session_user,
    PRIMARY KEY (host_id, endpoint_id),
    UNIQUE (host_id, api_id, endpoint),
    FOREIGN KEY (host_id, api_id) REFERENCES api_t ON DELETE CASCADE,
    FOREIGN KEY (host_id, api_version_id) REFERENCES api_version_t ON DELETE CASCADE
);
CREATE INDEX api_endpoint_version_ix ON api_endpoint_t (host_id, api_version_id);
COMMENT ON TABLE api_endpoint_t IS
    'An operation as it was imported. Not active: the current document has it no longer.';
COMMENT ON COLUMN api_endpoint_t.api_version_id IS 'The version that gave it its present form.';
COMMENT ON COLUMN api_endpoint_t.endpoint IS
    'Identity inside its source: <path>@<method>, later <tool>@call for other kinds.';
COMMENT ON COLUMN api_endpoint_t.endpoint_name IS
    'Name of the tool before names of other sources were considered.';
COMMENT ON COLUMN api_endpoint_t.digest IS
    'SHA-256 of all that was imported; equal means that nothing is to be written.';

-- 'repos_list-forUser' gives 'repos list for user'.
CREATE FUNCTION identifier_words(identifier text) RETURNS text
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    RETURN btrim(lower(regexp_replace(regexp_replace(regexp_replace(
        identifier,
        '([[:lower:][:digit:]])([[:upper:]])', '\1 \2', 'g'),
        '([[:upper:]])([[:upper:]][[:lower:]])', '\1 \2', 'g'),
        '[^[:alnum:]]+', ' ', 'g')));

-- Names stand in it stemmed and as they are, so that a half-typed word finds its name. What lies
-- beyond the cut is no help in finding a tool, and a tsvector has a limit of its own (1 MB).
CREATE FUNCTION tool_search(name text, title text, description text, tags text[]) RETURNS tsvector
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN setweight(to_tsvector('pg_catalog.simple', identifier_words(name)), 'A')
        || setweight(to_tsvector('pg_catalog.english', identifier_words(name)), 'A')
        || setweight(to_tsvector('pg_catalog.english', left(coalesce(title, ''), 1000)), 'B')
        || setweight(to_tsvector('pg_catalog.english',
               left(identifier_words(coalesce(array_to_string(tags, ' '), '')), 1000)), 'B')
        || setweight(to_tsvector('pg_catalog.english', left(description, 10000)), 'C');

CREATE FUNCTION tool_digest(
    name text, title text, description text, input_schema json, output_schema json,
    annotations jsonb
) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN encode(sha256(convert_to(
        json_build_array(name, title, description, input_schema, output_schema, annotations)::text,
        'UTF8')), 'hex');

CREATE TABLE tool_t (
    host_id                       uuid NOT NULL REFERENCES host_t ON DELETE CASCADE,
    tool_id                       uuid NOT NULL DEFAULT gen_random_uuid(),
    endpoint_id                   uuid,
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
    tags                          text[] NOT NULL DEFAULT '{}',
    binding                       jsonb NOT NULL CHECK (binding ? 'type'),
    implementation_type           text NOT NULL GENERATED ALWAYS AS (
        CASE binding ->> 'type' WHEN 'openapi' THEN 'rest' WHEN 'mcp' THEN 'mcp_server'
            ELSE binding ->> 'type' END) STORED,
    source_protocol               text NOT NULL GENERATED ALWAYS AS (
        CASE binding ->> 'type' WHEN 'openapi' THEN 'openapi' WHEN 'mcp' THEN 'mcp'
            ELSE 'http' END) STORED,
    api_method                    text GENERATED ALWAYS AS (binding ->> 'method') STORED,
    api_endpoint                  text GENERATED ALWAYS AS (
        coalesce(binding ->> 'server', '') || (binding ->> 'path')) STORED,
    digest                        char(64) NOT NULL GENERATED ALWAYS AS (
        tool_digest(name, title, description, input_schema, output_schema, annotations)) STORED,
    version                       varchar(20) NOT NULL DEFAULT '1.0.0',
    tool_metadata                 jsonb,
    routing_domain                varchar(128),
    semantic_namespace            varchar(128),
    sensitivity_tier              varchar(64),
    semantic_weight               real NOT NULL DEFAULT 1.0,
    lifecycle_status              varchar(32) NOT NULL DEFAULT 'active'
        CHECK (lifecycle_status IN ('active', 'deprecated', 'retired')),
    cost_tier                     varchar(32) CHECK (cost_tier IN ('low', 'medium', 'high')),
    target_personas               text,
    description_embedding         vector(384),
    description_embedding_model   varchar(128),
    description_embedding_dimension integer,
    description_embedding_source_hash char(64),
    description_embedding_ts      timestamptz,
    description_embedding_status  varchar(32) CHECK (description_embedding_status IN
        ('pending', 'ready', 'failed', 'disabled', 'blank')),
    description_embedding_error   text,
    search                        tsvector NOT NULL GENERATED ALWAYS AS (
        tool_search(name, title, description, tags)) STORED,
    aggregate_version             bigint NOT NULL DEFAULT 1,
    active                        boolean NOT NULL DEFAULT true,
    update_ts                     timestamptz NOT NULL DEFAULT current_timestamp,
    update_user                   varchar(126) NOT NULL DEFAULT session_user,
    PRIMARY KEY (host_id, tool_id),
    FOREIGN KEY (host_id, endpoint_id) REFERENCES api_endpoint_t ON DELETE CASCADE
);
-- Case is folded because some clients fold it.
CREATE UNIQUE INDEX tool_name_uk ON tool_t (host_id, lower(name)) WHERE active;
CREATE UNIQUE INDEX tool_endpoint_uk ON tool_t (host_id, endpoint_id);
CREATE INDEX tool_search_ix ON tool_t USING gin (search);
COMMENT ON COLUMN tool_t.endpoint_id IS 'The operation behind it; none: the tool was made by hand.';
COMMENT ON COLUMN tool_t.binding IS
    'How arguments become a call (schemas/binding.py). implementation_type, source_protocol, '
    'api_method and api_endpoint are read from it and cannot disagree.';
COMMENT ON COLUMN tool_t.digest IS 'SHA-256 of what a client is shown.';
COMMENT ON COLUMN tool_t.active IS
    'Not active: gone from its document, or taken out of service by hand.';

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
    'Derived. The truth about the arguments of a tool is tool_t.input_schema; this table has one '
    'row for each of its top-level properties, for people and reports. A trigger rewrites the rows '
    'in the statement that writes the schema; nothing reads them to serve a request, and edits '
    'made here are lost.';
