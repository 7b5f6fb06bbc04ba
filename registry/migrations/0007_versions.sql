-- The life of a source: versions that can be made tools of again, names that operations had before,
-- and the toolsets that a description puts its tools into.

ALTER TABLE tool_t ADD COLUMN toolsets text[] NOT NULL DEFAULT '{}';
COMMENT ON COLUMN tool_t.toolsets IS
    'Toolsets that its description puts it into, besides what the settings select.';

ALTER TABLE api_endpoint_t ADD COLUMN operation text;
COMMENT ON COLUMN api_endpoint_t.operation IS
    'Its id in the description, where that has one: it is the same operation when its path changes.';
-- Checked when a statement ends: two operations may swap their paths.
ALTER TABLE api_endpoint_t
    DROP CONSTRAINT api_endpoint_t_host_id_api_id_endpoint_key,
    ADD CONSTRAINT api_endpoint_key_uk UNIQUE (host_id, api_id, endpoint) DEFERRABLE;

ALTER TABLE api_version_t
    ADD COLUMN number integer,
    ADD COLUMN document_digest char(64),
    ADD COLUMN asked jsonb CHECK (jsonb_typeof(asked) = 'object'),
    ADD COLUMN outcomes jsonb CHECK (jsonb_typeof(outcomes) = 'object');
COMMENT ON COLUMN api_version_t.number IS 'From 1 in each source, in the order of the imports.';
COMMENT ON COLUMN api_version_t.document_digest IS
    'SHA-256 of the document, whoever reads it. None: stored by a release that did not keep it.';
COMMENT ON COLUMN api_version_t.asked IS
    'How it was imported: kind, location, base_url, base_url_trusted, include, exclude, options. '
    'None: by a release that did not keep it.';
COMMENT ON COLUMN api_version_t.outcomes IS 'Operations by what became of them.';
COMMENT ON COLUMN api_version_t.document IS
    'The document, zlib-compressed; kept for the current version and for the last ones '
    '(imports.versions_kept).';

UPDATE api_version_t AS version SET number = counted.number
FROM (
    SELECT host_id, api_version_id, row_number() OVER (
        PARTITION BY host_id, api_id ORDER BY current, created_ts, api_version_id) AS number
    FROM api_version_t
) AS counted
WHERE (version.host_id, version.api_version_id) = (counted.host_id, counted.api_version_id);
UPDATE api_version_t AS version SET asked = jsonb_build_object(
    'kind', kind, 'location', location, 'base_url', base_url, 'base_url_trusted', base_url_trusted,
    'include', to_jsonb(include), 'exclude', to_jsonb(exclude), 'options', options)
FROM api_t AS api
WHERE version.current AND (version.host_id, version.api_id) = (api.host_id, api.api_id);

-- Not by the node that writes the row: an older one, beside newer ones, does not number it.
CREATE FUNCTION api_version_number() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.number := coalesce((
        SELECT max(number) FROM api_version_t
        WHERE host_id = NEW.host_id AND api_id = NEW.api_id), 0) + 1;
    RETURN NEW;
END $$;
CREATE TRIGGER api_version_number BEFORE INSERT ON api_version_t
    FOR EACH ROW EXECUTE FUNCTION api_version_number();
ALTER TABLE api_version_t
    ALTER COLUMN number SET NOT NULL,
    ADD CONSTRAINT api_version_number_uk UNIQUE (host_id, api_id, number);

ALTER TABLE api_t ADD COLUMN rolled_back jsonb CHECK (jsonb_typeof(rolled_back) = 'object');
COMMENT ON COLUMN api_t.rolled_back IS
    'While an older version is served: what it was rolled back from (version: its number, document: '
    'SHA-256 of its bytes, asked: as in api_version_t). The same found again is not imported.';

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
    'Names that tools had before: they still call them and are not listed. An active tool of such a '
    'name goes first, and the next import that writes anything ends the alias.';

CREATE TRIGGER tool_alias_notify_insert AFTER INSERT ON tool_alias_t
    REFERENCING NEW TABLE AS new_row
    FOR EACH STATEMENT EXECUTE FUNCTION registry_notify();
CREATE TRIGGER tool_alias_notify_update AFTER UPDATE ON tool_alias_t
    REFERENCING OLD TABLE AS old_row NEW TABLE AS new_row
    FOR EACH STATEMENT EXECUTE FUNCTION registry_notify();
CREATE TRIGGER tool_alias_notify_delete AFTER DELETE ON tool_alias_t
    REFERENCING OLD TABLE AS old_row
    FOR EACH STATEMENT EXECUTE FUNCTION registry_notify();

-- As before, and: a tool that is in other toolsets is a change.
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
               OR new_row.toolsets <> old_row.toolsets
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
