-- Prompts, resources and resource templates of other MCP servers. Written by registry/sources.

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
    created_ts         timestamptz NOT NULL DEFAULT current_timestamp,
    aggregate_version  bigint NOT NULL DEFAULT 1,
    active             boolean NOT NULL DEFAULT true,
    update_ts          timestamptz NOT NULL DEFAULT current_timestamp,
    update_user        varchar(126) NOT NULL DEFAULT session_user,
    PRIMARY KEY (host_id, item_id),
    UNIQUE (host_id, api_id, kind, key),
    -- Deferrable: checked when a statement ends, so that two items may swap their names.
    UNIQUE (host_id, kind, name) DEFERRABLE,
    FOREIGN KEY (host_id, api_id) REFERENCES api_t ON DELETE CASCADE
);
COMMENT ON TABLE mcp_item_t IS
    'Prompts, resources and resource templates as other MCP servers list them. Not active: taken '
    'out of service by hand.';
COMMENT ON COLUMN mcp_item_t.key IS 'Name, URI or URI template at the server.';
COMMENT ON COLUMN mcp_item_t.name IS 'Name, URI or URI template that clients use.';
COMMENT ON COLUMN mcp_item_t.eras IS 'Protocol eras in which the server lists the item.';
COMMENT ON COLUMN mcp_item_t.created_ts IS
    'First import that listed the item. Of two templates that match a URI the older one has it.';
