-- Renewed tokens are no change: other gateways read them when theirs have ended. `UPDATE OF` alone
-- fires for a column that is set to the value that it has.

DROP TRIGGER connection_changed ON connection_t;
CREATE TRIGGER connection_changed AFTER UPDATE OF state, away ON connection_t
    FOR EACH ROW WHEN ((OLD.state, OLD.away) IS DISTINCT FROM (NEW.state, NEW.away))
    EXECUTE FUNCTION access_notify('connections');
