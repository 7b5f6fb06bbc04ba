-- Who may come in besides those with a token of an issuer, and whose token is good no longer.

CREATE TABLE api_key_t (
    host_id            uuid NOT NULL REFERENCES host_t ON DELETE CASCADE,
    key_id             varchar(32) NOT NULL,
    name               varchar(126) NOT NULL CHECK (name ~ '\S'),
    principal          varchar(255) NOT NULL CHECK (principal ~ '\S'),
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
-- The id alone finds a key, whoever's it is: it must be one of all tenants.
CREATE UNIQUE INDEX api_key_id_uk ON api_key_t (key_id);
CREATE UNIQUE INDEX api_key_name_uk ON api_key_t (host_id, name) WHERE revoked_ts IS NULL;
COMMENT ON TABLE api_key_t IS 'Keys of machines: tgk_<key_id>_<secret>.';
COMMENT ON COLUMN api_key_t.principal IS 'Who a caller with it is.';
COMMENT ON COLUMN api_key_t.secret_digest IS
    'SHA-256 of the secret. It has 256 random bits: nobody guesses it, however fast the hash.';
COMMENT ON COLUMN api_key_t.expires_ts IS 'None: never.';
COMMENT ON COLUMN api_key_t.last_used_ts IS 'To the minute; written behind the calls.';

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
    'Tokens that are good no longer: the one with this jti, or all of a subject that were issued '
    'before a time.';
COMMENT ON COLUMN revocation_t.expires_ts IS
    'When the tokens have ended by themselves, and the row is of no use.';

-- What a notice names is read again, whole. Each row tells: a statement that changes none, as when
-- nothing was left to purge, must not have all gateways read. last_used_ts alone is no change.
CREATE FUNCTION access_notify() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('toolgate_access', TG_ARGV[0]);
    RETURN NULL;
END $$;

CREATE TRIGGER api_key_notify AFTER INSERT OR DELETE OR UPDATE OF
    name, principal, secret_digest, scopes, roles, expires_ts, revoked_ts ON api_key_t
    FOR EACH ROW EXECUTE FUNCTION access_notify('keys');
CREATE TRIGGER revocation_notify AFTER INSERT OR DELETE OR UPDATE ON revocation_t
    FOR EACH ROW EXECUTE FUNCTION access_notify('revocations');
