-- Parameters of a tool in time linear in its schema. The schema was parsed again for each property,
-- twice: a tool with 200 properties and definitions of 2.6 MB took 16 s, and its tenant's other
-- imports waited. The rows are the same.
CREATE OR REPLACE FUNCTION tool_param_derive() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    properties json := NEW.input_schema -> 'properties';
    required jsonb;
    definitions json;
BEGIN
    IF TG_OP = 'UPDATE' THEN
        DELETE FROM tool_param_t WHERE host_id = NEW.host_id AND tool_id = NEW.tool_id;
    END IF;
    IF json_typeof(properties) = 'object' THEN
        required := NEW.input_schema -> 'required';
        definitions := NEW.input_schema -> '$defs';
        IF json_typeof(definitions) IS DISTINCT FROM 'object' THEN
            definitions := '{}';
        END IF;
        INSERT INTO tool_param_t (host_id, tool_id, name, param_type, required, default_value,
            description, validation_schema, order_index)
        SELECT NEW.host_id, NEW.tool_id, property.name,
            property_type(json_build_object(
                'type', coalesce(property.schema -> 'type', definition.type)), NULL),
            coalesce(required ? property.name, false),
            property.schema -> 'default', property.schema ->> 'description', property.schema,
            property.place - 1
        FROM json_each(properties) WITH ORDINALITY AS property (name, schema, place)
        LEFT JOIN (
            SELECT DISTINCT ON (name) name, schema -> 'type' AS type  -- the last of equal names
            FROM json_each(definitions) WITH ORDINALITY AS definition (name, schema, place)
            ORDER BY name, place DESC
        ) AS definition
            ON definition.name = substring(property.schema ->> '$ref' FROM '^#/\$defs/(.*)$');
    END IF;
    RETURN NULL;
END $$;
