-- What happened: calls and decisions, in chains in which a change or a gap shows.
--
-- A gateway process writes one chain. The hash of a record covers the hash before it, so nothing in
-- the middle of a chain can be changed, left out or put in; audit_chain_t says where a chain begins
-- and ends, and every new chain says how far it saw the others (gateway/audit/records.py).
-- Partitioned by weeks, which gateways make ahead; the default one has whatever no other has. No row
-- refers to a tenant: what a tenant did is known longer than the tenant.

CREATE TABLE audit_t (
    host_id         uuid NOT NULL,
    recorded_ts     timestamptz NOT NULL,
    chain_id        uuid NOT NULL,
    sequence        bigint NOT NULL,
    principal       text,
    mark            text,
    front           text,
    session         text,
    method          text,
    subject         text,
    source          text,
    decision        text,
    rule            text,
    outcome         text,
    latency_us      bigint,
    request_bytes   bigint,
    result_bytes    bigint,
    digest          text,
    arguments       text,
    request_id      text,
    client          text,
    hash            bytea NOT NULL
) PARTITION BY RANGE (recorded_ts);
-- Not unique: whoever puts a record in by hand is found by its hash.
CREATE INDEX audit_host_ix ON audit_t (host_id, recorded_ts, chain_id, sequence);
CREATE INDEX audit_chain_ix ON audit_t (chain_id, sequence);
CREATE TABLE audit_default_t PARTITION OF audit_t DEFAULT;

COMMENT ON TABLE audit_t IS 'A record of the audit log. What it does not know is null.';
COMMENT ON COLUMN audit_t.host_id IS 'The tenant of who asked.';
COMMENT ON COLUMN audit_t.recorded_ts IS
    'When it was answered. In a chain no record is older than the one before it.';
COMMENT ON COLUMN audit_t.mark IS 'Which credential it came with; of no use to anybody.';
COMMENT ON COLUMN audit_t.session IS 'Digest of its id.';
COMMENT ON COLUMN audit_t.digest IS 'SHA-256 of the encoded arguments, keyed if the chain is.';
COMMENT ON COLUMN audit_t.hash IS 'Over the hash before it and the record without it.';

CREATE TABLE audit_chain_t (
    host_id           uuid NOT NULL,
    chain_id          uuid NOT NULL,
    header            json NOT NULL,
    last_sequence     bigint NOT NULL,
    last_hash         bytea NOT NULL,
    last_ts           timestamptz NOT NULL,
    removed_sequence  bigint NOT NULL DEFAULT 0,
    removed_hash      bytea NOT NULL,
    seal              bytea NOT NULL,
    PRIMARY KEY (host_id, chain_id)
);
COMMENT ON TABLE audit_chain_t IS 'The chain that one gateway process wrote. Rows are kept for good.';
COMMENT ON COLUMN audit_chain_t.host_id IS 'The tenant of the gateway; its records are of any.';
COMMENT ON COLUMN audit_chain_t.header IS
    'Who began it, when, and which ends of other chains it saw. Its digest stands in front of the '
    'first record. Not jsonb: the digest is over this text.';
COMMENT ON COLUMN audit_chain_t.removed_sequence IS
    'Up to here they were removed because they were old enough; removed_hash is the last one''s.';
COMMENT ON COLUMN audit_chain_t.seal IS 'Over the columns before it, keyed if the chain is.';

-- The database user of gateways need not be able to create tables.
DO $do$
BEGIN
    EXECUTE format($sql$
        CREATE FUNCTION audit_make_week(monday date) RETURNS boolean LANGUAGE plpgsql
        SECURITY DEFINER SET search_path = %I, pg_temp AS $$
        DECLARE
            name text := 'audit_' || to_char(monday, 'YYYYMMDD') || '_t';
        BEGIN
            IF extract(isodow FROM monday) <> 1 OR abs(monday - current_date) > 60 THEN
                RAISE EXCEPTION 'not a Monday of these weeks: %%', monday;
            END IF;
            IF to_regclass(name) IS NOT NULL THEN
                RETURN false;
            END IF;
            EXECUTE format(
                'CREATE TABLE %%I PARTITION OF audit_t FOR VALUES FROM (%%L) TO (%%L)', name,
                monday::timestamp AT TIME ZONE 'UTC', (monday + 7)::timestamp AT TIME ZONE 'UTC');
            RETURN true;
        EXCEPTION WHEN check_violation THEN
            RETURN false;  -- the default partition has records of that week, and keeps them
        END $$
    $sql$, current_schema());
    EXECUTE format($sql$
        CREATE FUNCTION audit_drop_week(week text) RETURNS void LANGUAGE plpgsql
        SECURITY DEFINER SET search_path = %I, pg_temp AS $$
        BEGIN
            IF NOT has_table_privilege(session_user, 'audit_t', 'DELETE')
                OR week !~ '^audit_[0-9]{8}_t$' THEN
                RAISE EXCEPTION 'not to be dropped: %%', week;
            END IF;
            EXECUTE format('DROP TABLE %%I', week);
        END $$
    $sql$, current_schema());
END $do$;
