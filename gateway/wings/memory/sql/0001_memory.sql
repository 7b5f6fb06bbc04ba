-- What agents remember. Each memory belongs to one owner within a scope: a session, a user, an
-- agent, or '*' for the organisation. Words are keyed by owner, so that a search reads those that
-- the caller may read and document frequencies tell nothing of others. Vectors are those of the
-- kind `memory`, in entity_embedding_t.

CREATE TABLE memory_t (
    host_id            uuid NOT NULL,
    memory_id          uuid NOT NULL,
    scope              text NOT NULL CHECK (scope IN ('session', 'user', 'agent', 'org')),
    owner              text COLLATE "C" NOT NULL CHECK (owner ~ '\S'),
    subject            text COLLATE "C",
    agent              text COLLATE "C",
    audience           text[] NOT NULL DEFAULT '{}',
    kind               text NOT NULL DEFAULT 'fact' CHECK (kind IN ('fact', 'preference',
        'summary', 'learning', 'state', 'persona', 'scratchpad', 'turn', 'chunk', 'file', 'entity')),
    slot               text,
    content            text NOT NULL,
    content_hash       bytea NOT NULL,
    dated              text NOT NULL DEFAULT '',
    importance         real NOT NULL DEFAULT 0.5 CHECK (importance BETWEEN 0 AND 1),
    confidence         real NOT NULL DEFAULT 1 CHECK (confidence BETWEEN 0 AND 1),
    pinned             boolean NOT NULL DEFAULT false,
    keep               boolean NOT NULL DEFAULT false,
    masked             text[] NOT NULL DEFAULT '{}',
    trust              text NOT NULL DEFAULT 'agent'
        CHECK (trust IN ('user', 'admin', 'agent', 'tool', 'inferred')),
    session            text COLLATE "C",
    position           bigint,
    source             jsonb NOT NULL DEFAULT '{}',
    metadata           jsonb NOT NULL DEFAULT '{}',
    valid_from         timestamptz NOT NULL DEFAULT now(),
    valid_to           timestamptz CHECK (valid_to >= valid_from),
    created_ts         timestamptz NOT NULL DEFAULT now(),
    retired_ts         timestamptz,
    retired_by         text CHECK (retired_by IN ('slot', 'update', 'replaced', 'cap', 'expired')),
    superseded_by      uuid,
    expires_ts         timestamptz,
    ttl_s              real,
    aggregate_version  bigint NOT NULL DEFAULT 1,
    PRIMARY KEY (host_id, scope, memory_id),
    CHECK (content ~ '\S' OR kind = 'file'),
    CHECK (scope <> 'session' OR expires_ts IS NOT NULL),
    CHECK (scope <> 'user' OR (subject IS NOT NULL AND subject = owner)),
    CHECK ((retired_ts IS NULL) = (retired_by IS NULL))
) PARTITION BY LIST (scope);
-- Sessions churn; what lasts is not bloated by them.
CREATE TABLE memory_session_t PARTITION OF memory_t FOR VALUES IN ('session')
    WITH (autovacuum_vacuum_scale_factor = 0.05);
CREATE TABLE memory_lasting_t PARTITION OF memory_t FOR VALUES IN ('user', 'agent', 'org');
CREATE INDEX memory_owner_ix ON memory_t (host_id, scope, owner, created_ts);
CREATE UNIQUE INDEX memory_hash_ux
    ON memory_t (host_id, scope, owner, coalesce(agent, ''), content_hash) WHERE retired_ts IS NULL;
CREATE UNIQUE INDEX memory_slot_ux ON memory_t (host_id, scope, owner, slot)
    WHERE slot IS NOT NULL AND retired_ts IS NULL AND valid_to IS NULL;
CREATE INDEX memory_subject_ix ON memory_t (host_id, subject) WHERE subject IS NOT NULL;
CREATE INDEX memory_expires_ix ON memory_t (expires_ts) WHERE expires_ts IS NOT NULL;
CREATE INDEX memory_retired_ix ON memory_t (retired_ts) WHERE retired_ts IS NOT NULL;
CREATE INDEX memory_document_ix ON memory_t (host_id, scope, owner, (source ->> 'document'))
    WHERE kind = 'chunk' AND retired_ts IS NULL;
CREATE INDEX memory_superseded_ix ON memory_t (host_id, superseded_by)
    WHERE superseded_by IS NOT NULL;
COMMENT ON TABLE memory_t IS 'Memories, and those that they superseded.';
COMMENT ON COLUMN memory_t.subject IS 'The person whose data it is; null: nobody''s.';
COMMENT ON COLUMN memory_t.agent IS 'The agent that wrote it.';
COMMENT ON COLUMN memory_t.audience IS 'Agents that may read it; empty: all.';
COMMENT ON COLUMN memory_t.slot IS 'What it is the value of, as in home.city: one holds at a time.';
COMMENT ON COLUMN memory_t.content_hash IS 'SHA-256 of the content, normalised, and its place.';
COMMENT ON COLUMN memory_t.dated IS 'Its date in words, for the index.';
COMMENT ON COLUMN memory_t.keep IS 'Of a session: to be promoted when it ends.';
COMMENT ON COLUMN memory_t.masked IS 'Kinds of what was masked before it was stored.';
COMMENT ON COLUMN memory_t.session IS 'The session in which it was written.';
COMMENT ON COLUMN memory_t.position IS 'Of a turn: its number among the turns of its owner.';
COMMENT ON COLUMN memory_t.retired_by IS
    'Why it is not believed any more. A value that another one of its slot has followed was true '
    'until valid_to.';
COMMENT ON COLUMN memory_t.ttl_s IS 'A lifetime of its own, which writes do not renew.';

CREATE TABLE memory_word_t (
    host_id            uuid NOT NULL,
    scope              text NOT NULL,
    owner              text COLLATE "C" NOT NULL,
    term               text COLLATE "C" NOT NULL,
    memory_id          uuid NOT NULL,
    tf                 real NOT NULL,
    PRIMARY KEY (host_id, scope, owner, term, memory_id) INCLUDE (tf)
) WITH (autovacuum_vacuum_insert_scale_factor = 0.05, autovacuum_vacuum_scale_factor = 0.05);
COMMENT ON TABLE memory_word_t IS 'Words of each memory. Without foreign keys, as search_posting_t.';

CREATE TABLE memory_owner_t (
    host_id            uuid NOT NULL,
    scope              text NOT NULL,
    owner              text COLLATE "C" NOT NULL,
    subject            text COLLATE "C",
    rows               bigint NOT NULL DEFAULT 0,
    bytes              bigint NOT NULL DEFAULT 0,
    history            bigint NOT NULL DEFAULT 0,
    turns              bigint NOT NULL DEFAULT 0,
    minute             timestamptz NOT NULL DEFAULT date_trunc('minute', now()),
    writes             bigint NOT NULL DEFAULT 0,
    written_ts         timestamptz NOT NULL DEFAULT now(),
    promoted_ts        timestamptz,
    PRIMARY KEY (host_id, scope, owner)
) WITH (fillfactor = 70);
COMMENT ON TABLE memory_owner_t IS
    'What each owner has, for quotas. Writers of an owner lock its row, and so take turns.';
COMMENT ON COLUMN memory_owner_t.rows IS
    'Memories that are not retired. Triggers of memory_t keep this, bytes, history and turns.';
COMMENT ON COLUMN memory_owner_t.history IS 'Bytes of what was retired, as memory_past has them.';
COMMENT ON COLUMN memory_owner_t.turns IS 'The number of the next turn.';

CREATE TABLE memory_relation_t (
    host_id            uuid NOT NULL,
    scope              text NOT NULL,
    owner              text COLLATE "C" NOT NULL,
    subject            text COLLATE "C",
    from_name          text NOT NULL,
    relation           text NOT NULL,
    to_name            text NOT NULL,
    valid_from         timestamptz NOT NULL DEFAULT now(),
    valid_to           timestamptz,
    PRIMARY KEY (host_id, scope, owner, from_name, relation, to_name)
);
COMMENT ON TABLE memory_relation_t IS 'Relations between the entities of an owner, by their names.';

CREATE TABLE memory_tombstone_t (
    host_id            uuid NOT NULL,
    subject_hash       bytea NOT NULL,
    ts                 timestamptz NOT NULL,
    PRIMARY KEY (host_id, subject_hash)
);
COMMENT ON TABLE memory_tombstone_t IS
    'Persons whose memories were erased: nothing that is older is stored again.';

CREATE UNLOGGED TABLE memory_use_t (
    host_id            uuid NOT NULL,
    memory_id          uuid NOT NULL,
    uses               integer NOT NULL,
    last_ts            timestamptz NOT NULL,
    PRIMARY KEY (host_id, memory_id)
);
COMMENT ON TABLE memory_use_t IS 'How often searches returned a memory. A crash may empty it.';

-- The text of a memory that is embedded. Its date is indexed alone: vectors of texts with dates
-- find less.
CREATE FUNCTION memory_text(slot text, source jsonb, content text) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN concat_ws(' ', slot, (source ->> 'speaker') || ':', content);

CREATE FUNCTION memory_terms(given text) RETURNS TABLE (term text, tf real)
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT lexeme, cardinality(positions)::real
    FROM unnest(to_tsvector('pg_catalog.english', search_words(given)));
END;

-- What the organisation knows is a kind of its own: it may be much, and then has an index on its
-- vectors, which those of users and sessions would only be in the way of.
CREATE FUNCTION memory_kind(scope text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN CASE scope WHEN 'org' THEN 'memory_org' ELSE 'memory' END;

CREATE VIEW memory_source_v AS
SELECT host_id, memory_id AS entity_id, retired_ts IS NULL AND kind <> 'entity' AS active,
    memory_text(slot, source, content) AS source_text
FROM memory_t WHERE scope <> 'org';
CREATE VIEW memory_org_source_v AS
SELECT host_id, memory_id AS entity_id, retired_ts IS NULL AND kind <> 'entity' AS active,
    memory_text(slot, source, content) AS source_text
FROM memory_t WHERE scope = 'org';
SELECT search_kind_add('memory', 'passages');
SELECT search_kind_add('memory_org', 'passages');

-- Counts what the organisations have, for registry/search/indexes.py.
CREATE FUNCTION memory_org_count(hosts uuid[], numbers integer[]) RETURNS void
    LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO search_part_t (host_id, entity_type) SELECT host, 'memory_org'
    FROM unnest(hosts) AS host WHERE NOT EXISTS (SELECT FROM search_part_t
        WHERE (host_id, entity_type, owner) = (host, 'memory_org', ''))
    ON CONFLICT DO NOTHING;
    PERFORM search_count(array_agg(part_id), array_agg(''::text), array_agg(number),
        array_agg(0::float8))
    FROM unnest(hosts, numbers) AS given (host, number)
    JOIN search_part_t ON (host_id, entity_type, owner) = (host, 'memory_org', '');
END $$;

-- Bytes that a row of history counts.
CREATE FUNCTION memory_past(content text) RETURNS bigint
    LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN octet_length(content) + 256;

CREATE FUNCTION memory_added() RETURNS trigger LANGUAGE plpgsql
    SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    queued record;
BEGIN
    INSERT INTO memory_word_t (host_id, scope, owner, term, memory_id, tf)
    SELECT added.host_id, added.scope, added.owner, word.term, added.memory_id, word.tf
    FROM new_row AS added
    CROSS JOIN LATERAL memory_terms(memory_text(slot, source, content) || ' ' || dated) AS word;
    UPDATE memory_owner_t AS had SET rows = had.rows + one.live, bytes = had.bytes + one.size,
        history = had.history + one.past, turns = greatest(had.turns, one.turns)
    FROM (SELECT host_id, scope, owner, count(*) FILTER (WHERE retired_ts IS NULL) AS live,
            coalesce(sum(octet_length(content)) FILTER (WHERE retired_ts IS NULL), 0) AS size,
            coalesce(sum(memory_past(content)) FILTER (WHERE retired_ts IS NOT NULL), 0) AS past,
            max(position) + 1 AS turns
        FROM new_row GROUP BY host_id, scope, owner) AS one
    WHERE (had.host_id, had.scope, had.owner) = (one.host_id, one.scope, one.owner);
    FOR queued IN
        SELECT memory_kind(scope) AS kind, array_agg(host_id) AS hosts, array_agg(memory_id) AS ids,
            array_agg(source_hash(memory_text(slot, source, content))) AS hashes
        FROM new_row WHERE retired_ts IS NULL AND kind <> 'entity' GROUP BY memory_kind(scope)
    LOOP
        PERFORM embedding_queue(queued.kind, queued.hosts, queued.ids, queued.hashes);
    END LOOP;
    PERFORM memory_org_count(array_agg(host_id), array_agg(number)) FROM (
        SELECT host_id, count(*)::integer AS number FROM new_row WHERE scope = 'org'
        GROUP BY host_id) AS org HAVING count(*) > 0;
    RETURN NULL;
END $$;
CREATE TRIGGER memory_added AFTER INSERT ON memory_t REFERENCING NEW TABLE AS new_row
    FOR EACH STATEMENT EXECUTE FUNCTION memory_added();

CREATE FUNCTION memory_deleted() RETURNS trigger LANGUAGE plpgsql
    SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    lost record;
BEGIN
    UPDATE memory_owner_t AS had SET rows = had.rows - one.live, bytes = had.bytes - one.size,
        history = had.history - one.past
    FROM (SELECT host_id, scope, owner, count(*) FILTER (WHERE retired_ts IS NULL) AS live,
            coalesce(sum(octet_length(content)) FILTER (WHERE retired_ts IS NULL), 0) AS size,
            coalesce(sum(memory_past(content)) FILTER (WHERE retired_ts IS NOT NULL), 0) AS past
        FROM old_row GROUP BY host_id, scope, owner) AS one
    WHERE (had.host_id, had.scope, had.owner) = (one.host_id, one.scope, one.owner);
    FOR lost IN SELECT * FROM old_row LOOP -- a join might compare all words
        DELETE FROM memory_word_t AS word
        WHERE word.host_id = lost.host_id AND word.scope = lost.scope AND word.owner = lost.owner
            AND word.term = ANY (ARRAY(SELECT found.term FROM memory_terms(memory_text(
                lost.slot, lost.source, lost.content) || ' ' || lost.dated) AS found))
            AND word.memory_id = lost.memory_id;
        DELETE FROM memory_use_t AS used
        WHERE used.host_id = lost.host_id AND used.memory_id = lost.memory_id;
    END LOOP;
    FOR lost IN
        SELECT memory_kind(scope) AS kind, array_agg(host_id) AS hosts, array_agg(memory_id) AS ids
        FROM old_row GROUP BY memory_kind(scope)
    LOOP
        PERFORM embedding_forget(lost.kind, lost.hosts, lost.ids);
    END LOOP;
    PERFORM memory_org_count(array_agg(host_id), array_agg(number)) FROM (
        SELECT host_id, -count(*)::integer AS number FROM old_row WHERE scope = 'org'
        GROUP BY host_id) AS org HAVING count(*) > 0;
    RETURN NULL;
END $$;
CREATE TRIGGER memory_deleted AFTER DELETE ON memory_t REFERENCING OLD TABLE AS old_row
    FOR EACH STATEMENT EXECUTE FUNCTION memory_deleted();

CREATE FUNCTION memory_retired() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE memory_owner_t AS had SET rows = had.rows - one.lost, bytes = had.bytes - one.size,
        history = had.history + one.past
    FROM (SELECT host_id, scope, owner, count(*) AS lost,
            sum(octet_length(old_row.content)) AS size, sum(memory_past(old_row.content)) AS past
        FROM old_row JOIN new_row USING (host_id, scope, owner, memory_id)
        WHERE old_row.retired_ts IS NULL AND new_row.retired_ts IS NOT NULL
        GROUP BY host_id, scope, owner) AS one
    WHERE (had.host_id, had.scope, had.owner) = (one.host_id, one.scope, one.owner);
    RETURN NULL;
END $$;
CREATE TRIGGER memory_retired AFTER UPDATE ON memory_t
    REFERENCING OLD TABLE AS old_row NEW TABLE AS new_row
    FOR EACH STATEMENT EXECUTE FUNCTION memory_retired();

-- Writing. These functions are planned once for each connection: planning them takes longer than
-- running them. A refusal breaks the constraint memory_quota, memory_writes or memory_erased; its
-- message is for the caller.

-- Counts writes of an owner in this minute, and locks its row.
CREATE FUNCTION memory_written(tenant uuid, place text, whom text, person text, adds bigint)
    RETURNS memory_owner_t LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    found memory_owner_t;
BEGIN
    INSERT INTO memory_owner_t AS had (host_id, scope, owner, subject, writes)
    VALUES (tenant, place, whom, person, adds)
    ON CONFLICT (host_id, scope, owner) DO UPDATE SET minute = excluded.minute,
        written_ts = now(), subject = coalesce(had.subject, excluded.subject),
        writes = CASE had.minute WHEN excluded.minute THEN had.writes ELSE 0 END + adds
    RETURNING * INTO found;
    RETURN found;
END $$;

-- Locks the person whose data it is and then the owner, and checks quotas. `caller` is the user
-- that writes, `replaced` the number of memories that become history.
CREATE FUNCTION memory_begin(
    tenant uuid, place text, whom text, person text, key text, caller text,
    adds bigint, replaced bigint, size bigint, limits jsonb
) RETURNS void LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    had memory_owner_t;
    written bigint;
    most bigint := limits ->> 'writes_per_minute';
    refused text;
BEGIN
    IF person IS NOT NULL THEN
        PERFORM pg_advisory_xact_lock_shared(hashtextextended(key, 0));
    END IF;
    had := memory_written(tenant, place, whom, person, adds);
    written := had.writes;
    IF caller IS NOT NULL AND (place, whom) <> ('user', caller) THEN
        written := greatest(written, (memory_written(tenant, 'user', caller, caller, adds)).writes);
    END IF;
    IF written > most THEN
        RAISE EXCEPTION 'The owner, or the user, has more than % writes a minute '
            '(memory.writes_per_minute).', most
            USING ERRCODE = 'check_violation', CONSTRAINT = 'memory_writes';
    END IF;
    IF place <> 'session' AND had.rows + adds - replaced > (limits ->> 'owner_rows')::bigint THEN
        refused := format('%s memories, expected at most %s (memory.owner_rows)',
            had.rows, limits ->> 'owner_rows');
    ELSIF had.bytes + size > (limits ->> 'owner_bytes')::bigint THEN
        refused := format('%s bytes, expected at most %s (memory.owner_bytes)',
            had.bytes, limits ->> 'owner_bytes');
    END IF;
    IF refused IS NOT NULL THEN
        RAISE EXCEPTION 'The owner has %.', refused
            USING ERRCODE = 'check_violation', CONSTRAINT = 'memory_quota';
    END IF;
    IF had.history > (limits ->> 'owner_bytes')::bigint THEN
        PERFORM memory_trim(tenant, place, whom, (limits ->> 'owner_bytes')::bigint / 2);
    END IF;
END $$;

-- Deletes the oldest history of an owner beyond so many bytes.
CREATE FUNCTION memory_trim(tenant uuid, place text, whom text, most bigint) RETURNS void
    LANGUAGE sql AS $$
    WITH aged AS MATERIALIZED (
        SELECT memory_id, sum(memory_past(content)) OVER (ORDER BY retired_ts DESC, memory_id DESC) AS held
        FROM memory_t WHERE host_id = tenant AND scope = place AND owner = whom
            AND retired_ts IS NOT NULL
    )
    DELETE FROM memory_t WHERE host_id = tenant AND scope = place AND owner = whom
        AND memory_id IN (SELECT memory_id FROM aged WHERE held > most)
$$;

-- Present memories with these contents. Those that have expired make room, also in these slots.
CREATE FUNCTION memory_known(
    tenant uuid, place text, whom text, author text, hashes bytea[], slots text[]
) RETURNS TABLE (hash bytea, id uuid) LANGUAGE plpgsql
    SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    expired uuid[] := ARRAY(SELECT memory_id FROM memory_t
        WHERE host_id = tenant AND scope = place AND owner = whom AND retired_ts IS NULL
            AND expires_ts <= now() AND (content_hash = ANY (hashes) OR slot = ANY (slots)));
BEGIN
    IF expired <> '{}' THEN
        UPDATE memory_t SET retired_ts = now(), retired_by = 'expired'
        WHERE host_id = tenant AND scope = place AND memory_id = ANY (expired);
    END IF;
    RETURN QUERY SELECT content_hash, memory_id FROM memory_t
    WHERE host_id = tenant AND scope = place AND owner = whom AND retired_ts IS NULL
        AND coalesce(agent, '') = coalesce(author, '') AND content_hash = ANY (hashes)
        AND (expires_ts IS NULL OR expires_ts > now());
END $$;

-- Stores rows, whose fields are those of NewMemory, unless the person was erased after they were
-- made. `lifetime_s`: of those that have none of their own, in a session.
CREATE FUNCTION memory_insert(
    tenant uuid, place text, whom text, person text, key text, author text,
    ids uuid[], hashes bytea[], given jsonb, lifetime_s float8
) RETURNS void LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    IF person IS NOT NULL AND EXISTS (
        SELECT FROM jsonb_to_recordset(given) AS new (created timestamptz)
        JOIN memory_tombstone_t AS tombstone ON tombstone.host_id = tenant
            AND tombstone.subject_hash = sha256(convert_to(key, 'UTF8'))
            AND tombstone.ts > coalesce(created, now())
    ) THEN
        RAISE EXCEPTION 'The memories of this user were erased: nothing older is stored again.'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'memory_erased';
    END IF;
    INSERT INTO memory_t (host_id, memory_id, scope, owner, subject, agent, audience, kind,
        slot, content, content_hash, dated, importance, confidence, pinned, keep, masked, trust,
        session, position, source, metadata, valid_from, valid_to, created_ts, expires_ts, ttl_s)
    SELECT tenant, own.id, place, whom, person, author, audience, kind, slot, content, own.hash,
        dated, importance, confidence, pinned, keep, masked, trust, session,
        CASE kind WHEN 'turn' THEN had.turns - 1 + count(*) FILTER (WHERE kind = 'turn')
            OVER (ORDER BY own.nth) END,
        source, metadata, coalesce(valid_from, now()), valid_to, coalesce(created, now()),
        now() + make_interval(secs => coalesce(new.expires_s, lifetime_s)), new.expires_s
    FROM ROWS FROM (jsonb_to_recordset(given) AS (audience text[],
        kind text, slot text, content text, dated text, importance real, confidence real,
        pinned boolean, keep boolean, masked text[], trust text, session text, source jsonb,
        metadata jsonb, valid_from timestamptz, valid_to timestamptz, created timestamptz,
        expires_s real)) WITH ORDINALITY AS new
    JOIN unnest(ids, hashes) WITH ORDINALITY AS own (id, hash, nth) ON own.nth = new.ordinality
    CROSS JOIN (SELECT turns FROM memory_owner_t WHERE host_id = tenant AND scope = place
        AND owner = whom) AS had
    ORDER BY own.nth;
END $$;

-- Adds rows without slots in one statement. Returns the memories with these contents, new and old.
CREATE FUNCTION memory_add(
    tenant uuid, place text, whom text, person text, key text, author text, caller text,
    ids uuid[], hashes bytea[], given jsonb, adds bigint, size bigint, limits jsonb
) RETURNS TABLE (hash bytea, id uuid) LANGUAGE plpgsql
    SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    known bytea[] := '{}';
BEGIN
    PERFORM memory_begin(tenant, place, whom, person, key, caller, adds, 0, size, limits);
    FOR hash, id IN SELECT * FROM memory_known(tenant, place, whom, author, hashes, '{}') LOOP
        known := array_append(known, hash);
        RETURN NEXT;
    END LOOP;
    IF known <> '{}' THEN
        SELECT array_agg(new.id ORDER BY nth), array_agg(new.hash ORDER BY nth),
            jsonb_agg(one.value ORDER BY nth) INTO ids, hashes, given
        FROM unnest(ids, hashes) WITH ORDINALITY AS new (id, hash, nth)
        JOIN jsonb_array_elements(given) WITH ORDINALITY AS one (value, nth) USING (nth)
        WHERE new.hash <> ALL (known);
    END IF;
    IF ids IS NOT NULL THEN
        PERFORM memory_insert(tenant, place, whom, person, key, author, ids, hashes, given, NULL);
        RETURN QUERY SELECT * FROM unnest(hashes, ids);
    END IF;
END $$;
