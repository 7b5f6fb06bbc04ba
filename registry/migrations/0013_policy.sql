-- Rules that are kept in the database beside those of the settings, and calls that wait until
-- somebody agrees to them.

CREATE TABLE policy_rule_t (
    host_id            uuid NOT NULL REFERENCES host_t ON DELETE CASCADE,
    name               varchar(63) NOT NULL CHECK (name ~ '^[a-z0-9][a-z0-9_-]*$'),
    rule               jsonb NOT NULL CHECK (jsonb_typeof(rule) = 'object'),
    aggregate_version  bigint NOT NULL DEFAULT 1,
    update_ts          timestamptz NOT NULL DEFAULT current_timestamp,
    update_user        varchar(126) NOT NULL DEFAULT session_user,
    PRIMARY KEY (host_id, name)
);
COMMENT ON COLUMN policy_rule_t.rule IS 'As an entry of policy.rules in the settings.';
COMMENT ON COLUMN policy_rule_t.aggregate_version IS 'Counts the writes of a rule, from 1.';

CREATE FUNCTION policy_notify() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('toolgate_access', 'policy');
    RETURN NULL;
END $$;
CREATE TRIGGER policy_rule_notify AFTER INSERT OR UPDATE OR DELETE ON policy_rule_t
    FOR EACH STATEMENT EXECUTE FUNCTION policy_notify();

CREATE TABLE approval_t (
    host_id            uuid NOT NULL REFERENCES host_t ON DELETE CASCADE,
    approval_id        uuid NOT NULL DEFAULT gen_random_uuid(),
    principal          text NOT NULL,
    tool_id            uuid NOT NULL,
    tool               text NOT NULL,
    source             text NOT NULL,
    digest             char(64) NOT NULL,
    arguments          text NOT NULL,
    rule               text NOT NULL,
    reason             text NOT NULL DEFAULT '',
    state              varchar(16) NOT NULL DEFAULT 'waiting'
        CHECK (state IN ('waiting', 'approved', 'denied', 'used')),
    created_ts         timestamptz NOT NULL DEFAULT current_timestamp,
    expire_ts          timestamptz NOT NULL,
    decide_ts          timestamptz,
    decide_user        text,
    PRIMARY KEY (host_id, approval_id)
);
CREATE INDEX approval_call_ix ON approval_t (host_id, principal, digest)
    WHERE state IN ('waiting', 'approved');
CREATE INDEX approval_expire_ix ON approval_t (host_id, expire_ts);
COMMENT ON TABLE approval_t IS
    'Calls that were refused until somebody agrees; each agreement is good for one call.';
COMMENT ON COLUMN approval_t.digest IS 'SHA-256 of the tool as it was and of the arguments.';
COMMENT ON COLUMN approval_t.arguments IS 'For people: masked, and cut where they are long.';
COMMENT ON COLUMN approval_t.expire_ts IS
    'Until then it waits; once approved, until then it is good for one call.';
