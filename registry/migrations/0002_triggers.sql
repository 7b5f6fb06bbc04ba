-- What has to follow every write of the registry, also one made by hand: the rows of tool_param_t
-- and the notice to the gateways.

-- JSON Schema type of a property: its `type`, or that of what its local $ref names. Of several
-- types the first that is not null; `any` where nothing is said.
CREATE FUNCTION property_type(property json, root json) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    WITH said (type) AS (
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
    FROM said;
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

-- Tells the gateways which tenant to read again, once per statement; of equal notices in one
-- transaction PostgreSQL sends one. An update counts when it touches what a catalog holds; embeddings and counters do not.
CREATE FUNCTION registry_notify() RETURNS trigger LANGUAGE plpgsql AS $$
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

CREATE TRIGGER tool_notify_insert AFTER INSERT ON tool_t
    REFERENCING NEW TABLE AS new_row
    FOR EACH STATEMENT EXECUTE FUNCTION registry_notify();
CREATE TRIGGER tool_notify_update AFTER UPDATE ON tool_t
    REFERENCING OLD TABLE AS old_row NEW TABLE AS new_row
    FOR EACH STATEMENT EXECUTE FUNCTION registry_notify();
CREATE TRIGGER tool_notify_delete AFTER DELETE ON tool_t
    REFERENCING OLD TABLE AS old_row
    FOR EACH STATEMENT EXECUTE FUNCTION registry_notify();

CREATE TRIGGER api_notify_insert AFTER INSERT ON api_t
    REFERENCING NEW TABLE AS new_row
    FOR EACH STATEMENT EXECUTE FUNCTION registry_notify();
CREATE TRIGGER api_notify_update AFTER UPDATE ON api_t
    REFERENCING OLD TABLE AS old_row NEW TABLE AS new_row
    FOR EACH STATEMENT EXECUTE FUNCTION registry_notify();
CREATE TRIGGER api_notify_delete AFTER DELETE ON api_t
    REFERENCING OLD TABLE AS old_row
    FOR EACH STATEMENT EXECUTE FUNCTION registry_notify();
