-- Roles whose people are called for with the account of a connection, too; null: its owner alone.
ALTER TABLE connection_t ADD COLUMN shared_with text[] CHECK (cardinality(shared_with) > 0);
CREATE INDEX connection_shared_ix ON connection_t (host_id, tenant_id, source)
    WHERE shared_with IS NOT NULL;

CREATE TRIGGER connection_shared AFTER UPDATE OF shared_with ON connection_t
    FOR EACH ROW EXECUTE FUNCTION access_notify('connections');

-- Connections of revoked API keys are suspended, at all gateways at once.
CREATE TRIGGER api_key_connections AFTER UPDATE OF expires_ts, revoked_ts ON api_key_t
    FOR EACH ROW EXECUTE FUNCTION access_notify('connections');
