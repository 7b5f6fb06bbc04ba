-- Erasures of people: what was removed where, and what stayed. Written by registry/access/erasures.py.
CREATE TABLE erasure_t (
    host_id      uuid NOT NULL,
    erasure_id   uuid NOT NULL DEFAULT gen_random_uuid(),
    person_hash  bytea CHECK (octet_length(person_hash) = 32),
    addresses    text[] NOT NULL DEFAULT '{}',
    pseudonym    text NOT NULL,
    requester    text NOT NULL,
    report       json NOT NULL,
    begun_ts     timestamptz NOT NULL DEFAULT clock_timestamp(),
    ended_ts     timestamptz,
    PRIMARY KEY (host_id, erasure_id),
    CHECK (ended_ts IS NULL OR (person_hash IS NULL AND addresses = '{}'))
);
CREATE UNIQUE INDEX erasure_running_ux ON erasure_t (host_id, person_hash);
CREATE INDEX erasure_ix ON erasure_t (host_id, begun_ts, erasure_id);
COMMENT ON TABLE erasure_t IS 'Reports of erasures. They outlive the data, and name nobody.';
COMMENT ON COLUMN erasure_t.person_hash IS
    'SHA-256 of the id of the person, by which an interrupted erasure is continued; null: ended.';
COMMENT ON COLUMN erasure_t.addresses IS 'Mail addresses of the person, until the erasure ends.';
COMMENT ON COLUMN erasure_t.pseudonym IS 'Stands for the id of the person where records stay.';
COMMENT ON COLUMN erasure_t.report IS 'JSON: rows by place.';

ALTER TABLE audit_t ADD COLUMN erased bytea;
COMMENT ON COLUMN audit_t.erased IS
    'Hash over what an erasure has left of the record, chained to `hash`, which is that of the whole '
    'record. Null: it is whole.';
