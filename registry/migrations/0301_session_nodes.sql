-- Whoever changes a session waits until the gateways that have it open act by the change.

ALTER TABLE state_session_t ADD COLUMN nodes text[] NOT NULL DEFAULT '{}';
COMMENT ON COLUMN state_session_t.nodes IS 'Gateways that have, or had, the session open.';
