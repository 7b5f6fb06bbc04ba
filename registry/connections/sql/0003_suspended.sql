-- Connections of disabled people are suspended, at all gateways at once.

CREATE TRIGGER login_person_connections AFTER UPDATE OF disabled_ts ON login_person_t
    FOR EACH ROW EXECUTE FUNCTION access_notify('connections');
CREATE TRIGGER login_user_connections AFTER UPDATE OF disabled_ts ON login_user_t
    FOR EACH ROW EXECUTE FUNCTION access_notify('connections');
