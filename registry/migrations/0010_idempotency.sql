-- Results recorded for Idempotency-Keys. Written by gateway/state/idempotency.py.

-- Without foreign keys: a command may belong to a principal or a service that no table knows.
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
    'Commands that were sent with an Idempotency-Key: a repeated one gets the stored answer and is '
    'not executed again.';
COMMENT ON COLUMN command_idempotency_t.request_hash IS
    'SHA-256 of the request; another request under the same key is refused.';
COMMENT ON COLUMN command_idempotency_t.response IS
    'The answer, failures included. Null while the command runs, and for good if its node died.';
