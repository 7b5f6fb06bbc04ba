-- Audit log: calls and decisions, in hash chains that show changes and gaps. Written by
-- gateway/audit.
--
-- A gateway process writes one chain. The hash of a record covers the hash before it, so nothing in
-- the middle of a chain can be changed, removed or inserted unnoticed; audit_chain_t holds where a
-- chain begins and ends, and every new chain states how far it saw the others
-- (gateway/audit/records.py). Partitioned by weeks, which gateways create ahead; the default
-- partition takes what fits no other.
-- Rows do not refer to a tenant: they are kept longer than the tenant.

CREATE TABLE audit_t (
    host_id         uuid NOT NULL,
    recorded_ts     timestamptz NOT NULL,
    chain_id        uuid NOT NULL,
    sequence        bigint NOT NULL,

    -- the caller
    principal       text,
    mark            text,
    front           text,
    session         text,
    request_id      text,
    client          text,

    -- the message and its answer
    method          text,
    subject         text,
    source          text,
    arguments       text,
    digest          text,
    decision        text,
    rule            text,
    outcome         text,
    latency_us      bigint,
    request_bytes   bigint,
    result_bytes    bigint,

    hash            bytea NOT NULL
) PARTITION BY RANGE (recorded_ts);
-- Not unique: a record that is inserted by hand is detected by its hash.
CREATE INDEX audit_host_ix ON audit_t (host_id, recorded_ts, chain_id, sequence);
CREATE INDEX audit_chain_ix ON audit_t (chain_id, sequence);
CREATE TABLE audit_default_t PARTITION OF audit_t DEFAULT;

COMMENT ON TABLE audit_t IS 'Records of the audit log. Null: not known.';
COMMENT ON TABLE audit_default_t IS 'Records of weeks that have no partition.';
COMMENT ON COLUMN audit_t.host_id IS 'Tenant of the caller.';
COMMENT ON COLUMN audit_t.recorded_ts IS
    'Time of the answer. In a chain no record is older than the one before it.';
COMMENT ON COLUMN audit_t.sequence IS 'Position in the chain, from 1.';
COMMENT ON COLUMN audit_t.mark IS
    'Identifies the credential that the caller came with; it grants nothing.';
COMMENT ON COLUMN audit_t.front IS 'Name of the protocol revision.';
COMMENT ON COLUMN audit_t.session IS 'Digest of the session id.';
COMMENT ON COLUMN audit_t.client IS 'Address of the client.';
COMMENT ON COLUMN audit_t.subject IS 'The tool, prompt or resource.';
COMMENT ON COLUMN audit_t.arguments IS 'Masked; only with `audit.arguments: masked`.';
COMMENT ON COLUMN audit_t.digest IS
    'SHA-256 of the encoded arguments, or HMAC if the chain has a key.';
COMMENT ON COLUMN audit_t.latency_us IS 'Microseconds.';
COMMENT ON COLUMN audit_t.request_bytes IS 'Size of the encoded arguments.';
COMMENT ON COLUMN audit_t.result_bytes IS 'Size of content and structured content.';
COMMENT ON COLUMN audit_t.hash IS 'Hash over the hash before it and the record without it.';

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
COMMENT ON TABLE audit_chain_t IS 'Chains, each written by one gateway process. Never deleted.';
COMMENT ON COLUMN audit_chain_t.host_id IS 'Tenant of the gateway; its records are of any tenant.';
COMMENT ON COLUMN audit_chain_t.header IS
    'Node, start time, and the ends of the other chains that it saw. Its digest precedes the first '
    'record. Not jsonb: the digest is over this text.';
COMMENT ON COLUMN audit_chain_t.removed_sequence IS
    'Last record that retention has removed; 0: none. removed_hash is the hash of that record.';
COMMENT ON COLUMN audit_chain_t.seal IS
    'Hash over the columns before it, or HMAC if the chain has a key.';

-- Creates and drops partitions with the rights of the owner: the database user of gateways need not
-- be able to create tables. The schema is fixed, as SECURITY DEFINER demands.
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
