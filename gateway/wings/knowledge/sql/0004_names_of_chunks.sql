-- Names of chunks in fewer bytes than the text has: one row for a chunk with all of them. A row for
-- each, with the ids of the tenant, the collection and the chunk in it and in the keys of three
-- indexes, had ten times the bytes of its name. As no row belongs to two documents, nobody who
-- writes or deletes one waits for another.
--
-- Unlike other migrations this one removes a table, as no release has had it: gateways of before it
-- have to stop first. What one of them writes or deletes meanwhile waits, and fails.
LOCK TABLE knowledge_chunk_t, knowledge_mention_t IN ACCESS EXCLUSIVE MODE;

CREATE TABLE knowledge_named_t (
    host_id            uuid NOT NULL,
    chunk_id           uuid NOT NULL,
    collection_id      uuid NOT NULL,
    roles              "char"[] NOT NULL,
    methods            "char"[] NOT NULL,
    starts             integer[] NOT NULL,
    ends               integer[] NOT NULL,
    norms              text[] COLLATE "C" NOT NULL,
    names              text[] NOT NULL,
    types              text[] NOT NULL,
    descriptions       text[],
    PRIMARY KEY (host_id, chunk_id),
    FOREIGN KEY (host_id, chunk_id) REFERENCES knowledge_chunk_t ON DELETE CASCADE,
    CHECK (array_position(norms, NULL) IS NULL AND array_position(types, NULL) IS NULL)
);
COMMENT ON TABLE knowledge_named_t IS
    'Names in chunks, which are the graph: an entity is what has a name in a collection, and is '
    'there as long as a chunk mentions it. See knowledge_mention_v; written by knowledge_name.';
COMMENT ON COLUMN knowledge_named_t.roles IS 'First letters of knowledge_mention_v.role; h: inherit.';
COMMENT ON COLUMN knowledge_named_t.methods IS 'First letters of knowledge_mention_v.method.';
COMMENT ON COLUMN knowledge_named_t.names IS 'Null: as the norm.';
COMMENT ON COLUMN knowledge_named_t.descriptions IS 'Null: none has one.';

CREATE VIEW knowledge_mention_v AS
SELECT host_id, chunk_id, collection_id, mention.norm COLLATE "C" AS norm,
    CASE role WHEN 'm' THEN 'mention' WHEN 's' THEN 'subject' WHEN 'c' THEN 'call'
        WHEN 'l' THEN 'link' WHEN 'i' THEN 'import' ELSE 'inherit' END AS role,
    start_byte, end_byte, type, coalesce(name, mention.norm) COLLATE "default" AS name,
    CASE method WHEN 'r' THEN 'rule' WHEN 'p' THEN 'parser' ELSE 'llm' END AS method,
    coalesce(description, '') AS description
FROM knowledge_named_t CROSS JOIN LATERAL
    unnest(norms, roles, starts, ends, types, names, methods, descriptions)
    AS mention (norm, role, start_byte, end_byte, type, name, method, description);
COMMENT ON VIEW knowledge_mention_v IS 'Names in chunks, one row for each place.';
COMMENT ON COLUMN knowledge_mention_v.norm IS 'The name as it is compared with others.';
COMMENT ON COLUMN knowledge_mention_v.role IS
    'subject: the chunk is about it. Others: how the chunk names it.';
COMMENT ON COLUMN knowledge_mention_v.start_byte IS 'Within the chunk, which may move.';

-- The key of a name in a collection. Kinds of keys: 0, a norm that is mentioned; 1, one that the chunk
-- is about; 2, the same, of a symbol; 3, what stands before a bracket, as "jaguar" in "jaguar (car)";
-- 4, the last part of a dotted name that code refers to.
CREATE FUNCTION knowledge_name_key(collection_id uuid, name text, kind integer) RETURNS bigint
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN hashtextextended(name COLLATE "C", uuid_hash_extended(collection_id, kind));
CREATE FUNCTION knowledge_name_keys(
    collection_id uuid, norms text[], names text[], types text[], roles "char"[]
) RETURNS bigint[]
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN (
        SELECT array_agg(DISTINCT knowledge_name_key(collection_id, key.name, key.kind))
        FROM unnest(norms, names, types, roles) AS mention (norm, name, type, role)
        CROSS JOIN LATERAL (
            SELECT mention.norm, 0
            UNION ALL
            SELECT mention.norm, CASE type WHEN 'symbol' THEN 2 ELSE 1 END WHERE role = 's'
            UNION ALL
            SELECT left(mention.norm, bracket.place - 1), 3
            FROM generate_series(2, CASE WHEN mention.norm LIKE '% (%)'
                THEN length(mention.norm) ELSE 0 END) AS bracket (place)
            WHERE substr(mention.norm, bracket.place, 2) = ' ('
            UNION ALL
            SELECT knowledge_last(coalesce(mention.name, mention.norm)), 4
            WHERE type = 'symbol' AND role IN ('c', 'i', 'h')
        ) AS key (name, kind)
    );
CREATE INDEX knowledge_named_ix ON knowledge_named_t
    USING gin (knowledge_name_keys(collection_id, norms, names, types, roles))
    WITH (fastupdate = off);

-- The chunks of a collection that have a key. IS NOT DISTINCT FROM keeps the planner from reading
-- all of a tenant by the primary key.
CREATE FUNCTION knowledge_naming(host uuid, collection uuid, name text, kind integer)
    RETURNS TABLE (chunk_id uuid) LANGUAGE sql STABLE PARALLEL SAFE ROWS 10 AS $$
    SELECT named.chunk_id FROM knowledge_named_t AS named
    WHERE knowledge_name_keys(collection_id, norms, names, types, roles)
            @> ARRAY[knowledge_name_key(collection, name, kind)]
        AND named.collection_id = collection AND named.host_id IS NOT DISTINCT FROM host
$$;

-- Adds names to chunks, in JSON as rows of (id, norm, role, start_byte, end_byte, type, name, method,
-- description). Those that are there stay, but for `replaced`, which are told otherwise now.
CREATE FUNCTION knowledge_name(host uuid, collection uuid, given jsonb, replaced boolean)
    RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    -- an array: a subquery would have all rows of the tenant read where statistics are old
    ids CONSTANT uuid[] NOT NULL := ARRAY(
        SELECT DISTINCT id FROM jsonb_to_recordset(given) AS new (id uuid));
BEGIN
    PERFORM FROM knowledge_named_t AS named
    WHERE named.host_id = host AND named.chunk_id = ANY(ids)
    ORDER BY named.chunk_id FOR UPDATE;

    INSERT INTO knowledge_named_t AS named (host_id, chunk_id, collection_id, norms, roles, starts,
        ends, types, names, methods, descriptions)
    SELECT host, chunk_id, collection, array_agg(norm ORDER BY start_byte, norm, role),
        array_agg((CASE role WHEN 'inherit' THEN 'h' ELSE left(role, 1) END)::"char"
            ORDER BY start_byte, norm, role),
        array_agg(start_byte ORDER BY start_byte, norm, role),
        array_agg(end_byte ORDER BY start_byte, norm, role),
        array_agg(type ORDER BY start_byte, norm, role),
        array_agg(nullif(name, norm) ORDER BY start_byte, norm, role),
        array_agg(left(method, 1)::"char" ORDER BY start_byte, norm, role),
        CASE WHEN bool_or(description <> '')
            THEN array_agg(nullif(description, '') ORDER BY start_byte, norm, role) END
    FROM (
        SELECT chunk_id, norm, role, start_byte, coalesce(had.end_byte, new.end_byte) AS end_byte,
            coalesce(had.name, new.name) AS name,
            CASE WHEN replaced THEN coalesce(new.type, had.type)
                ELSE coalesce(had.type, new.type) END AS type,
            CASE WHEN replaced THEN coalesce(new.method, had.method)
                ELSE coalesce(had.method, new.method) END AS method,
            CASE WHEN replaced THEN coalesce(new.description, had.description)
                ELSE coalesce(had.description, new.description) END AS description
        FROM (
            SELECT DISTINCT ON (id, norm, role, start_byte) id AS chunk_id, norm COLLATE "C" AS norm,
                role, start_byte, end_byte, type, name, method, description
            FROM ROWS FROM (jsonb_to_recordset(given) AS (id uuid, norm text, role text,
                start_byte integer, end_byte integer, type text, name text, method text,
                description text)) WITH ORDINALITY
            ORDER BY id, norm, role, start_byte, ordinality
        ) AS new FULL JOIN (
            SELECT * FROM knowledge_mention_v AS mention
            WHERE mention.host_id = host AND mention.chunk_id = ANY(ids)
        ) AS had USING (chunk_id, norm, role, start_byte)
    ) AS mention
    GROUP BY chunk_id
    ON CONFLICT (host_id, chunk_id) DO UPDATE SET norms = excluded.norms, roles = excluded.roles,
        starts = excluded.starts, ends = excluded.ends, types = excluded.types,
        names = excluded.names, methods = excluded.methods, descriptions = excluded.descriptions
    WHERE (named.norms, named.roles, named.starts, named.types, named.methods, named.descriptions)
        IS DISTINCT FROM (excluded.norms, excluded.roles, excluded.starts, excluded.types,
            excluded.methods, excluded.descriptions);
END $$;

-- Removes names from the chunks of a collection; returns those that were there. Rows are updated, not
-- written anew: whoever deletes their chunk meanwhile would be waited for, and wait.
CREATE FUNCTION knowledge_unname(host uuid, collection uuid, given text[]) RETURNS SETOF text
    LANGUAGE plpgsql AS $$
DECLARE
    chunks uuid[];
BEGIN
    chunks := ARRAY(
        SELECT DISTINCT naming.chunk_id FROM unnest(given) AS one (norm)
        CROSS JOIN LATERAL knowledge_naming(host, collection, one.norm, 0) AS naming);
    chunks := ARRAY(
        SELECT named.chunk_id FROM knowledge_named_t AS named
        WHERE named.host_id = host AND named.chunk_id = ANY (chunks)
        ORDER BY named.chunk_id FOR UPDATE);
    RETURN QUERY SELECT DISTINCT mention.norm FROM knowledge_mention_v AS mention
        WHERE mention.host_id = host AND mention.chunk_id = ANY (chunks)
            AND mention.norm = ANY (given);
    WITH kept AS (
        SELECT named.chunk_id, array_agg(norm ORDER BY place) AS norms,
            array_agg(role ORDER BY place) AS roles, array_agg(start_byte ORDER BY place) AS starts,
            array_agg(end_byte ORDER BY place) AS ends, array_agg(type ORDER BY place) AS types,
            array_agg(name ORDER BY place) AS names, array_agg(method ORDER BY place) AS methods,
            CASE WHEN count(description) > 0
                THEN array_agg(description ORDER BY place) END AS descriptions
        FROM knowledge_named_t AS named CROSS JOIN LATERAL
            unnest(norms, roles, starts, ends, types, names, methods, descriptions) WITH ORDINALITY
            AS mention (norm, role, start_byte, end_byte, type, name, method, description, place)
        WHERE named.host_id = host AND named.chunk_id = ANY (chunks)
            AND mention.norm <> ALL (given)
        GROUP BY named.chunk_id
    )
    UPDATE knowledge_named_t AS named SET norms = kept.norms, roles = kept.roles,
        starts = kept.starts, ends = kept.ends, types = kept.types, names = kept.names,
        methods = kept.methods, descriptions = kept.descriptions
    FROM kept WHERE named.host_id = host AND named.chunk_id = ANY (chunks)
        AND named.chunk_id = kept.chunk_id;
    DELETE FROM knowledge_named_t AS named
    WHERE named.host_id = host AND named.chunk_id = ANY (chunks) AND named.norms && given;
END $$;

INSERT INTO knowledge_named_t (host_id, chunk_id, collection_id, norms, roles, starts, ends, types,
    names, methods, descriptions)
SELECT host_id, chunk_id, collection_id, array_agg(norm ORDER BY start_byte, norm, role),
    array_agg((CASE role WHEN 'inherit' THEN 'h' ELSE left(role, 1) END)::"char"
        ORDER BY start_byte, norm, role),
    array_agg(start_byte ORDER BY start_byte, norm, role),
    array_agg(end_byte ORDER BY start_byte, norm, role),
    array_agg(type ORDER BY start_byte, norm, role),
    array_agg(nullif(name, norm) ORDER BY start_byte, norm, role),
    array_agg(left(method, 1)::"char" ORDER BY start_byte, norm, role),
    CASE WHEN bool_or(description <> '')
        THEN array_agg(nullif(description, '') ORDER BY start_byte, norm, role) END
FROM knowledge_mention_t GROUP BY host_id, chunk_id, collection_id;
DROP TABLE knowledge_mention_t;
