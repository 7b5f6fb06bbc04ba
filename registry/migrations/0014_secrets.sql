-- What satisfies the security schemes of sources, encrypted: the database alone does not tell it.

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
    'What `sources.SOURCE.credentials.SCHEME` of the settings would say, for those that say nothing.';
COMMENT ON COLUMN secret_t.source IS 'Name of the source, which may be imported later.';
COMMENT ON COLUMN secret_t.kind IS 'Which keys it has; none of their values.';
COMMENT ON COLUMN secret_t.key_id IS 'Start of the SHA-256 of the key that it is encrypted under.';
COMMENT ON COLUMN secret_t.sealed IS
    'AES-256-GCM of the JSON; host_id, source and scheme are authenticated with it, so that it '
    'means nothing in another row.';

CREATE TRIGGER secret_notify
    AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON secret_t
    FOR EACH STATEMENT EXECUTE FUNCTION access_notify('secrets');
