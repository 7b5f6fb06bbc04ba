-- Tools that people make, change and take out of service by hand.

ALTER TABLE tool_t
    ADD COLUMN disabled boolean NOT NULL DEFAULT false,
    ADD CONSTRAINT tool_source_fk
        FOREIGN KEY (host_id, source_api_id) REFERENCES api_t ON DELETE CASCADE,
    -- PostgreSQL 16 cannot change the expression of a column.
    DROP COLUMN implementation_type,
    ADD COLUMN implementation_type text NOT NULL GENERATED ALWAYS AS (
        CASE binding ->> 'type' WHEN 'openapi' THEN 'rest' WHEN 'mcp' THEN 'mcp_server'
            WHEN 'function' THEN 'python' WHEN 'script' THEN binding ->> 'language'
            ELSE binding ->> 'type' END) STORED;
CREATE INDEX tool_source_ix ON tool_t (host_id, source_api_id) WHERE source_api_id IS NOT NULL;

COMMENT ON COLUMN tool_t.source_api_id IS
    'Of a tool that was made by hand: the source through which its calls go. None: they go nowhere, '
    'or endpoint_id says it.';
COMMENT ON COLUMN tool_t.disabled IS
    'Taken out of service by hand; then it is not active either, whatever its document says.';

-- Imports of nodes of older releases know nothing of it.
CREATE FUNCTION tool_stays_disabled() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.active := false;
    RETURN NEW;
END $$;
CREATE TRIGGER tool_stays_disabled BEFORE UPDATE ON tool_t
    FOR EACH ROW WHEN (NEW.disabled AND NEW.active)
    EXECUTE FUNCTION tool_stays_disabled();
