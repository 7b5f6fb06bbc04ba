-- Correlation ids are chosen by callers: each has its own, so that nobody's invocation is taken for
-- another caller's, or refused because of it. An older gateway goes on; it refuses ids of others.
CREATE UNIQUE INDEX invocation_owner_correlation_ix
    ON invocation_t (host_id, correlation_id, principal_id);
DROP INDEX invocation_correlation_ix;

CREATE OR REPLACE FUNCTION invocation_known() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM invocation_done_t
            WHERE host_id = NEW.host_id AND correlation_id = NEW.correlation_id
                AND principal_id = NEW.principal_id)
        OR NEW.idempotency_key IS NOT NULL AND EXISTS (SELECT FROM invocation_done_t
            WHERE host_id = NEW.host_id AND principal_id = NEW.principal_id
                AND skill_name = NEW.skill_name AND idempotency_key = NEW.idempotency_key) THEN
        RAISE EXCEPTION 'an invocation that has ended has these ids'
            USING ERRCODE = 'unique_violation', TABLE = TG_TABLE_NAME;
    END IF;
    RETURN NULL;
END $$;
