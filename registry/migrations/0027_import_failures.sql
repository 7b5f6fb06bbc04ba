-- Why the last import of a source failed, for lists of sources. Older nodes neither read nor write it.
CREATE TABLE import_failure_t (
    host_id    uuid NOT NULL,
    source     varchar(63) NOT NULL,
    reason     text NOT NULL,
    failed_ts  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (host_id, source)
);
COMMENT ON TABLE import_failure_t IS
    'Sources whose last import by a gateway failed; their next import that succeeds ends it.';
COMMENT ON COLUMN import_failure_t.source IS 'Name; one that was never imported has no row in api_t.';
