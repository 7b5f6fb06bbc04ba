-- Tenants, sources, the versions of their descriptions, and the operations found in them.
-- Written by registry/sources. Table and column names follow light-portal's agent tools.
--
-- Conventions of all tables of the registry:
--   host_id            the tenant; first in the key of every table that belongs to tenants, and in
--                      every unique index, so that tables distribute by it (docs/scaling.md)
--   aggregate_version  number of writes of the row, from 1
--   active             false: out of service; the row is kept
--   *_ts               times with time zone; update_ts and update_user: the last write
-- JSON that a model reads is `json`: the order of properties matters and jsonb sorts keys. JSON
-- that only Toolgate reads is `jsonb`.

CREATE EXTENSION IF NOT EXISTS vector;

CREATE TABLE host_t (
    host_id            uuid PRIMARY KEY,
    name               varchar(126) NOT NULL,
    aggregate_version  bigint NOT NULL DEFAULT 1,
    active             boolean NOT NULL DEFAULT true,
    update_ts          timestamptz NOT NULL DEFAULT current_timestamp,
    update_user        varchar(126) NOT NULL DEFAULT session_user
);
COMMENT ON TABLE host_t IS 
    'Tenants. Deleting one deletes the rows that refer to it; its audit log is kept.';

CREATE TABLE api_t (
    host_id            uuid NOT NULL REFERENCES host_t ON DELETE CASCADE,
    api_id             uuid NOT NULL DEFAULT gen_random_uuid(),
    name               varchar(63) NOT NULL,
    kind               varchar(32) NOT NULL,
    origin             varchar(32),

    -- the description, and what of it becomes tools
    location           text NOT NULL,
    include            text[] NOT NULL DEFAULT '{}',
    exclude            text[] NOT NULL DEFAULT '{}',
    options            jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(options) = 'object'),
    rolled_back        jsonb CHECK (jsonb_typeof(rolled_back) = 'object'),

    -- where calls go
    base_url           text,
    base_url_trusted   boolean NOT NULL DEFAULT false,
    server             jsonb CHECK (jsonb_typeof(server) = 'object'),

    aggregate_version  bigint NOT NULL DEFAULT 1,
    active             boolean NOT NULL DEFAULT true,
    update_ts          timestamptz NOT NULL DEFAULT current_timestamp,
    update_user        varchar(126) NOT NULL DEFAULT session_user,
    PRIMARY KEY (host_id, api_id),
    UNIQUE (host_id, name)
);
COMMENT ON TABLE api_t IS 'Sources: where tools come from and where their calls go.';
COMMENT ON COLUMN api_t.kind IS
    'openapi, graphql, hybrid, python, mcp, wing; or manual: made for tools that were written by hand.';
COMMENT ON COLUMN api_t.origin IS
    'Who imported the source last: settings, example (settings of an example), cli, admin '
    'or wing (the wing of the gateway that it belongs to). Null: '
    'made for tools that were written by hand. A source that was removed from the settings is '
    'still served, without the headers and credentials that stood there, until it is deleted.';
COMMENT ON COLUMN api_t.location IS 'Path or URL of the description, or address of the server.';
COMMENT ON COLUMN api_t.options IS
    'Options of the kind of source (schemas/source.py); absent members have their defaults.';
COMMENT ON COLUMN api_t.rolled_back IS
    'While an older version is served: what the source was rolled back from (version: its number, '
    'document: SHA-256 of its bytes, spec: as in api_version_t). The same document, imported the '
    'same way, is not imported again.';
COMMENT ON COLUMN api_t.base_url IS 'Null: neither the settings nor the description name one.';
COMMENT ON COLUMN api_t.base_url_trusted IS
    'False: only the description names base_url, so calls to private addresses are refused.';
COMMENT ON COLUMN api_t.server IS
    'Capabilities and server information of an MCP server as of the last import '
    '(schemas/mcp/snapshot.py); null for other kinds.';

CREATE TABLE api_version_t (
    host_id            uuid NOT NULL,
    api_version_id     uuid NOT NULL DEFAULT gen_random_uuid(),
    api_id             uuid NOT NULL,
    number             integer NOT NULL,
    current            boolean NOT NULL DEFAULT true,

    -- the description
    title              text,
    api_version        text,
    document           bytea,
    document_digest    char(64),

    -- the import
    digest             varchar(128),
    spec               jsonb NOT NULL CHECK (jsonb_typeof(spec) = 'object'),
    outcomes           jsonb CHECK (jsonb_typeof(outcomes) = 'object'),

    aggregate_version  bigint NOT NULL DEFAULT 1,
    active             boolean NOT NULL DEFAULT true,
    created_ts         timestamptz NOT NULL DEFAULT current_timestamp,
    update_ts          timestamptz NOT NULL DEFAULT current_timestamp,
    update_user        varchar(126) NOT NULL DEFAULT session_user,
    PRIMARY KEY (host_id, api_version_id),
    CONSTRAINT api_version_number_uk UNIQUE (host_id, api_id, number),
    FOREIGN KEY (host_id, api_id) REFERENCES api_t ON DELETE CASCADE
);
CREATE UNIQUE INDEX api_version_current_uk ON api_version_t (host_id, api_id) WHERE current;
CREATE INDEX api_version_api_ix ON api_version_t (host_id, api_id, created_ts);
-- Documents are compressed by the importer; compressing them again would only cost time.
ALTER TABLE api_version_t ALTER COLUMN document SET STORAGE EXTERNAL;
COMMENT ON TABLE api_version_t IS 'Imported versions of the description of a source.';
COMMENT ON COLUMN api_version_t.number IS
    'Position in the imports of the source, from 1; assigned by a trigger.';
COMMENT ON COLUMN api_version_t.current IS 'True for the one version that is served.';
COMMENT ON COLUMN api_version_t.api_version IS 'Version that the description states of itself.';
COMMENT ON COLUMN api_version_t.document IS
    'The description, zlib-compressed; kept for the current version and the last '
    '`imports.versions_kept` ones.';
COMMENT ON COLUMN api_version_t.document_digest IS 'SHA-256 of the uncompressed document.';
COMMENT ON COLUMN api_version_t.digest IS
    'Identifies the document together with the importer that read it.';
COMMENT ON COLUMN api_version_t.spec IS
    'Arguments of the import: kind, location, base_url, base_url_trusted, include, exclude and '
    'options.';
COMMENT ON COLUMN api_version_t.outcomes IS 'Number of operations by outcome of their import.';

CREATE FUNCTION api_version_number() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.number := coalesce((
        SELECT max(number) FROM api_version_t
        WHERE host_id = NEW.host_id AND api_id = NEW.api_id), 0) + 1;
    RETURN NEW;
END $$;
CREATE TRIGGER api_version_number BEFORE INSERT ON api_version_t
    FOR EACH ROW EXECUTE FUNCTION api_version_number();

CREATE TABLE api_endpoint_t (
    host_id            uuid NOT NULL,
    endpoint_id        uuid NOT NULL,
    api_id             uuid NOT NULL,
    api_version_id     uuid NOT NULL,
    operation          text,
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
    -- Deferrable: checked when a statement ends, so that two operations may swap their paths.
    CONSTRAINT api_endpoint_key_uk UNIQUE (host_id, api_id, endpoint) DEFERRABLE,
    FOREIGN KEY (host_id, api_id) REFERENCES api_t ON DELETE CASCADE,
    FOREIGN KEY (host_id, api_version_id) REFERENCES api_version_t ON DELETE CASCADE
);
CREATE INDEX api_endpoint_version_ix ON api_endpoint_t (host_id, api_version_id);
COMMENT ON TABLE api_endpoint_t IS
    'Operations as they were imported. Not active: the current version lacks the operation.';
COMMENT ON COLUMN api_endpoint_t.api_version_id IS
    'The version in which the operation got its present form.';
COMMENT ON COLUMN api_endpoint_t.operation IS
    'Operation id in the description, if it has one; identifies an operation whose path changes.';
COMMENT ON COLUMN api_endpoint_t.endpoint IS
    'Identity of the operation inside its source: <path>@<method>, or <tool>@call.';
COMMENT ON COLUMN api_endpoint_t.endpoint_name IS
    'Tool name before it was made unique among all sources.';
COMMENT ON COLUMN api_endpoint_t.digest IS
    'SHA-256 of everything that was imported; if equal, an import writes nothing.';
