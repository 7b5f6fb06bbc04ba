-- Notifications that a tenant's catalog changed: channel `toolgate_registry`, payload the host_id
-- (registry/catalog/feed.py listens). Also for rows that are written by hand.

-- Once per statement; PostgreSQL sends equal notifications of a transaction once. An update of
-- tool_t counts if it touches what a catalog holds. EXECUTE, because a query on transition tables
-- has to be planned for as many rows as there are: a cached plan that was made for one row would
-- compare all pairs of ten thousand.
CREATE FUNCTION registry_notify() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        PERFORM pg_notify('toolgate_registry', host_id::text)
        FROM (SELECT DISTINCT host_id FROM new_row) AS changed;
    ELSIF TG_OP = 'DELETE' THEN
        PERFORM pg_notify('toolgate_registry', host_id::text)
        FROM (SELECT DISTINCT host_id FROM old_row) AS changed;
    ELSIF TG_TABLE_NAME = 'tool_t' THEN
        EXECUTE $query$
            SELECT count(pg_notify('toolgate_registry', host_id::text))
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
            ) AS changed
        $query$;
    ELSE
        PERFORM pg_notify('toolgate_registry', host_id::text)
        FROM (SELECT host_id FROM new_row UNION SELECT host_id FROM old_row) AS changed;
    END IF;
    RETURN NULL;
END $$;

DO $$
DECLARE watched text;
BEGIN
    FOREACH watched IN ARRAY ARRAY['api', 'tool', 'tool_alias', 'mcp_item', 'skill', 'skill_tool',
        'skill_dependency', 'agent_definition', 'agent_skill']
    LOOP
        EXECUTE format($trigger$
            CREATE TRIGGER %1$s_notify_insert AFTER INSERT ON %1$s_t
                REFERENCING NEW TABLE AS new_row
                FOR EACH STATEMENT EXECUTE FUNCTION registry_notify();
            CREATE TRIGGER %1$s_notify_update AFTER UPDATE ON %1$s_t
                REFERENCING OLD TABLE AS old_row NEW TABLE AS new_row
                FOR EACH STATEMENT EXECUTE FUNCTION registry_notify();
            CREATE TRIGGER %1$s_notify_delete AFTER DELETE ON %1$s_t
                REFERENCING OLD TABLE AS old_row
                FOR EACH STATEMENT EXECUTE FUNCTION registry_notify();
            $trigger$, watched);
    END LOOP;
END $$;
