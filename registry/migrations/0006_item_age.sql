-- Which of two servers had a resource template first: that one has the URIs that both would give.

ALTER TABLE mcp_item_t ADD COLUMN created_ts timestamptz NOT NULL DEFAULT current_timestamp;
UPDATE mcp_item_t SET created_ts = update_ts;
COMMENT ON COLUMN mcp_item_t.created_ts IS 'When its server was first seen to list it.';
