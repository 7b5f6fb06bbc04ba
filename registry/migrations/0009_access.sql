-- API keys, revoked tokens, policy rules, approvals and credentials of sources. Written by
-- registry/access. Changes are notified on the channel `toolgate_access` with the name of what has
-- to be read again.

-- Per row where a statement may change none, as a purge that finds nothing: that must not make all
-- gateways read.
CREATE FUNCTION access_notify() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('toolgate_access', TG_ARGV[0]);
    RETURN NULL;
END $$;

CREATE TABLE api_key_t (
    host_id            uuid NOT NULL REFERENCES host_t ON DELETE CASCADE,
    key_id             varchar(32) NOT NULL,
    name               varchar(126) NOT NULL CHECK (name ~ '\S'),
    principal          varchar(255) NOT NULL CHECK (principal ~ '\S'),
    makers             text[] NOT NULL DEFAULT '{}',
    secret_digest      bytea NOT NULL CHECK (octet_length(secret_digest) = 32),
    scopes             text[] NOT NULL DEFAULT '{}',
    roles              text[] NOT NULL DEFAULT '{}',
    created_ts         timestamptz NOT NULL DEFAULT current_timestamp,
    expires_ts         timestamptz,
    revoked_ts         timestamptz,
    last_used_ts       timestamptz,
    aggregate_version  bigint NOT NULL DEFAULT 1,
    update_ts          timestamptz NOT NULL DEFAULT current_timestamp,
    update_user        varchar(126) NOT NULL DEFAULT session_user,
    PRIMARY KEY (host_id, key_id)
);
CREATE UNIQUE INDEX api_key_name_uk ON api_key_t (host_id, name) WHERE revoked_ts IS NULL;
COMMENT ON TABLE api_key_t IS 'API keys of machines: tgk_<key_id>_<secret>.';
COMMENT ON COLUMN api_key_t.key_id IS
    '12 random letters and digits: gateways find a key by them alone, among all tenants.';
COMMENT ON COLUMN api_key_t.principal IS 'Principal of callers with the key.';
COMMENT ON COLUMN api_key_t.makers IS
    'Principal who made the key; if that one came with a key, also the makers of that key.';
COMMENT ON COLUMN api_key_t.secret_digest IS
    'SHA-256 of the secret. A fast hash is enough: the secret has 256 random bits.';
COMMENT ON COLUMN api_key_t.expires_ts IS 'Null: never.';
COMMENT ON COLUMN api_key_t.last_used_ts IS 'To the minute; written after the calls.';

CREATE TRIGGER api_key_notify AFTER INSERT OR DELETE OR UPDATE OF
    name, principal, secret_digest, scopes, roles, expires_ts, revoked_ts ON api_key_t
    FOR EACH ROW EXECUTE FUNCTION access_notify('keys');

CREATE TABLE revocation_t (
    host_id            uuid NOT NULL REFERENCES host_t ON DELETE CASCADE,
    revocation_id      uuid NOT NULL DEFAULT gen_random_uuid(),
    jti                varchar(255),
    subject            varchar(255),
    issued_before_ts   timestamptz,
    reason             varchar(255) NOT NULL DEFAULT '',
    created_ts         timestamptz NOT NULL DEFAULT current_timestamp,
    expires_ts         timestamptz NOT NULL,
    update_user        varchar(126) NOT NULL DEFAULT session_user,
    PRIMARY KEY (host_id, revocation_id),
    CHECK ((jti IS NOT NULL AND subject IS NULL AND issued_before_ts IS NULL)
        OR (jti IS NULL AND subject IS NOT NULL AND issued_before_ts IS NOT NULL))
);
CREATE INDEX revocation_expires_ix ON revocation_t (expires_ts);
COMMENT ON TABLE revocation_t IS
    'Revoked tokens: the one with this jti, or all of a subject that were issued before a time.';
COMMENT ON COLUMN revocation_t.expires_ts IS
    'Time when the tokens have expired by themselves and the row can be purged.';

CREATE TRIGGER revocation_notify AFTER INSERT OR DELETE OR UPDATE ON revocation_t
    FOR EACH ROW EXECUTE FUNCTION access_notify('revocations');

CREATE TABLE policy_rule_t (
    host_id            uuid NOT NULL REFERENCES host_t ON DELETE CASCADE,
    name               varchar(63) NOT NULL CHECK (name ~ '^[a-z0-9][a-z0-9_-]*$'),
    rule               jsonb NOT NULL CHECK (jsonb_typeof(rule) = 'object'),
    aggregate_version  bigint NOT NULL DEFAULT 1,
    update_ts          timestamptz NOT NULL DEFAULT current_timestamp,
    update_user        varchar(126) NOT NULL DEFAULT session_user,
    PRIMARY KEY (host_id, name)
);
COMMENT ON TABLE policy_rule_t IS 'Policy rules besides those of the settings.';
COMMENT ON COLUMN policy_rule_t.rule IS 'The rule, in the form of an entry of policy.rules.';

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

    -- the call
    principal          text NOT NULL,
    makers             text[] NOT NULL DEFAULT '{}',
    tool_id            uuid NOT NULL,
    tool               text NOT NULL,
    source             text NOT NULL,
    digest             char(64) NOT NULL,
    arguments          text NOT NULL,

    -- the decision
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
CREATE INDEX approval_decide_ix ON approval_t (decide_ts) WHERE decide_ts IS NOT NULL;
COMMENT ON TABLE approval_t IS
    'Calls that wait for an approval, and the approvals; each is valid for one call.';
COMMENT ON COLUMN approval_t.makers IS
    'Makers of the API key that the call came with, in order. None of them may approve the call.';
COMMENT ON COLUMN approval_t.digest IS 'SHA-256 of the tool at that time and of the arguments.';
COMMENT ON COLUMN approval_t.arguments IS 'For display: masked, and truncated where they are long.';
COMMENT ON COLUMN approval_t.rule IS 'Name of the policy rule that requires the approval.';
COMMENT ON COLUMN approval_t.expire_ts IS
    'End of the wait; of an approved call, the time until which it may be made.';

CREATE TABLE secret_t (
    host_id            uuid NOT NULL REFERENCES host_t ON DELETE CASCADE,
    source             varchar(63) NOT NULL,
    scheme             varchar(100) NOT NULL,
    kind               varchar(32) NOT NULL,
    key_id             char(16) NOT NULL,
    nonce              bytea NOT NULL CHECK (octet_length(nonce) = 12),
    sealed             bytea NOT NULL CHECK (octet_length(sealed) <= 65536),
    update_ts          timestamptz NOT NULL DEFAULT current_timestamp,
    update_user        varchar(126) NOT NULL DEFAULT session_user,
    PRIMARY KEY (host_id, source, scheme)
);
COMMENT ON TABLE secret_t IS
    'Encrypted credentials of sources, for security schemes that have none in '
    '`sources.SOURCE.credentials.SCHEME` of the settings.';
COMMENT ON COLUMN secret_t.source IS 'Name of the source, which may not be imported yet.';
COMMENT ON COLUMN secret_t.kind IS 'Names of the members of the credential; none of the values.';
COMMENT ON COLUMN secret_t.key_id IS 'First 16 hex digits of the SHA-256 of the encryption key.';
COMMENT ON COLUMN secret_t.sealed IS
    'AES-256-GCM of the JSON. host_id, source and scheme are authenticated with it, so that the '
    'value cannot be moved to another row.';

CREATE TRIGGER secret_notify
    AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON secret_t
    FOR EACH STATEMENT EXECUTE FUNCTION access_notify('secrets');
