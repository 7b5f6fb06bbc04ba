-- Hybrid services: how a source is called, and the answers that are kept for Idempotency-Keys.

ALTER TABLE api_t ADD COLUMN options jsonb NOT NULL DEFAULT '{}'
    CHECK (jsonb_typeof(options) = 'object');
COMMENT ON COLUMN api_t.options IS
    'How a hybrid service is called: side, dialect, batch (schemas/source.py). What is not in it '
    'has its default.';

-- No foreign keys: a command may belong to a principal, or a service, that no table knows.
CREATE TABLE command_idempotency_t (
    host_id            uuid NOT NULL,
    principal_id       varchar(256) NOT NULL,
    service_id         varchar(512) NOT NULL,
    idempotency_key    varchar(128) NOT NULL CHECK (length(idempotency_key) >= 1),
    request_hash       bytea NOT NULL CHECK (length(request_hash) = 32),
    state              varchar(16) NOT NULL DEFAULT 'running' CHECK (state IN ('running', 'done')),
    response           bytea,
    created_ts         timestamptz NOT NULL DEFAULT current_timestamp,
    expires_ts         timestamptz NOT NULL,
    PRIMARY KEY (host_id, principal_id, service_id, idempotency_key)
);
CREATE INDEX command_idempotency_expires_ix ON command_idempotency_t (expires_ts);
COMMENT ON TABLE command_idempotency_t IS
    'Commands that were sent with an Idempotency-Key: the same one again gets the same answer and '
    'does nothing.';
COMMENT ON COLUMN command_idempotency_t.request_hash IS
    'SHA-256 of the request; another request under the same key is refused.';
COMMENT ON COLUMN command_idempotency_t.response IS
    'The answer, failure included. None while it runs, and for good when its node died.';
