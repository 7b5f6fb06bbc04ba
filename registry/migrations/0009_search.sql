-- What tools, and later skills, are found by: their words, how frequent those are, and what an answer
-- may be narrowed by. Derived from the tables that hold the things themselves, in the transaction
-- that writes them.
--
-- A document is what can be found now: what is not active, held back or retired has none. A kind of
-- thing is indexed by a view <kind>_search_v with the columns of tool_search_v, and by triggers that
-- call search_refresh. Words are stems of English; identifiers are split before that, here as in
-- queries. Ranking is BM25F (Robertson and Zaragoza 2009, 3.6): the occurrences of a word in all
-- fields of a document are added with the weights of the fields, and count as one number from then on.

CREATE TABLE search_part_t (
    part_id            integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    host_id            uuid NOT NULL,
    entity_type        varchar(32) NOT NULL,
    UNIQUE (host_id, entity_type)
);
COMMENT ON TABLE search_part_t IS
    'What is searched together, one kind of thing of one tenant; and the number that it has in the '
    'tables beside this one.';

CREATE TABLE search_doc_t (
    doc_id             integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    part_id            integer NOT NULL,
    entity_id          uuid NOT NULL,
    name               text COLLATE "C" NOT NULL,
    source             text COLLATE "C" NOT NULL,
    domain             text,
    namespace          text,
    tier               text,
    toolsets           text[] NOT NULL,
    scopes             text[] NOT NULL,
    weight             real NOT NULL,
    digest             char(32) NOT NULL,
    UNIQUE (part_id, entity_id)
);
COMMENT ON COLUMN search_doc_t.source IS 'Name of its source; empty: made by hand.';
COMMENT ON COLUMN search_doc_t.toolsets IS 'Those that its description puts it into.';
COMMENT ON COLUMN search_doc_t.scopes IS 'A caller needs one of them; empty: it is for everybody.';
COMMENT ON COLUMN search_doc_t.weight IS 'Factor of its score.';
COMMENT ON COLUMN search_doc_t.digest IS 'MD5 of its texts: equal means that its words are the same.';

-- No foreign keys: they would be checked for each word of each document.
CREATE TABLE search_posting_t (
    part_id            integer NOT NULL,
    doc_id             integer NOT NULL,
    tf                 real NOT NULL,
    length             real NOT NULL,
    term               text COLLATE "C" NOT NULL,
    PRIMARY KEY (part_id, term, doc_id) INCLUDE (tf, length)
) WITH (autovacuum_vacuum_insert_scale_factor = 0.05, autovacuum_vacuum_scale_factor = 0.05);
CREATE INDEX search_posting_doc_ix ON search_posting_t (doc_id);
COMMENT ON TABLE search_posting_t IS
    'Which words a document has. Everything that a search reads stands in the index; that a heap '
    'page need not be looked at as well, vacuum has to say.';
COMMENT ON COLUMN search_posting_t.tf IS 'Occurrences of the word, each times the weight of its field.';
COMMENT ON COLUMN search_posting_t.length IS
    'The sum of tf over all words of the document; here, so that ranking joins nothing.';

CREATE TABLE search_count_t (
    part_id            integer NOT NULL,
    term               text COLLATE "C" NOT NULL,
    docs               integer NOT NULL,
    length             double precision NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.1);
CREATE INDEX search_count_ix ON search_count_t (part_id, term);
COMMENT ON TABLE search_count_t IS
    'How many documents have a word: the sum of its rows. The empty word stands for all documents, '
    'and only there length is theirs. Writers add rows, and fold into theirs those that nobody else '
    'is folding, so that none has to wait for another.';

-- The same as identifier_words, faster on texts in which there is little to split; and a character
-- of a script that is written without spaces (Chinese, Japanese, Korean) becomes a word of its own.
CREATE FUNCTION search_words(given text) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN CASE WHEN octet_length(given) > length(given)
        THEN regexp_replace(identifier_words(given),
            '([\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3\uf900-\ufaff])', ' \1 ', 'g')
        ELSE identifier_words(given) END;

-- What lies beyond the cuts is no help in finding anything, and a tsvector has limits of its own.
CREATE FUNCTION search_terms(
    name text, title text, description text, source text, tags text, parameters text,
    parameter_texts text
) RETURNS TABLE (term text, tf real)
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT word.lexeme, sum(field.weight * cardinality(word.positions))::real
    FROM (VALUES
        (name, 2.0::real), (title, 1.0), (description, 1.5), (source, 1.0), (tags, 1.0),
        (parameters, 0.6), (parameter_texts, 0.4)
    ) AS field (text, weight)
    CROSS JOIN LATERAL unnest(to_tsvector('pg_catalog.english',
        search_words(left(field.text, 10000)))) AS word
    GROUP BY word.lexeme;
END;

-- The scopes that a hybrid action asks for; of any other tool none.
CREATE FUNCTION binding_scopes(binding jsonb) RETURNS text[]
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN CASE
        WHEN binding ->> 'type' IN ('hybrid', 'python')
            AND NOT coalesce((binding ->> 'skip_auth')::boolean, false)
            AND binding ->> 'scope' ~ '\S'
        THEN array_remove(regexp_split_to_array(binding ->> 'scope', '\s+'), '')
        ELSE '{}' END;

-- `live`: whether it can be found. Texts are made only where they are asked for.
CREATE VIEW tool_search_v AS
SELECT tool.host_id, tool.tool_id AS entity_id,
    tool.active AND tool.held IS NULL AND tool.lifecycle_status <> 'retired' AS live,
    tool.name::text AS name, tool.title, tool.description,
    coalesce(api.name, '')::text AS source, array_to_string(tool.tags, ' ') AS tags,
    (SELECT string_agg(key, ' ') FROM json_object_keys(
        CASE json_typeof(tool.input_schema -> 'properties') WHEN 'object'
        THEN tool.input_schema -> 'properties' END) AS property (key)) AS parameters,
    (SELECT string_agg(value ->> 'description', ' ') FROM json_each(
        CASE json_typeof(tool.input_schema -> 'properties') WHEN 'object'
        THEN tool.input_schema -> 'properties' END)
        WHERE json_typeof(value) = 'object') AS parameter_texts,
    tool.routing_domain::text AS domain, tool.semantic_namespace::text AS namespace,
    tool.sensitivity_tier::text AS tier, tool.toolsets, binding_scopes(tool.binding) AS scopes,
    -- what is deprecated stands behind its equal that is not
    (tool.semantic_weight * CASE tool.lifecycle_status WHEN 'deprecated' THEN 0.8 ELSE 1 END)::real
        AS weight
FROM tool_t AS tool
LEFT JOIN api_endpoint_t AS endpoint
    ON (endpoint.host_id, endpoint.endpoint_id) = (tool.host_id, tool.endpoint_id)
LEFT JOIN api_t AS api
    ON (api.host_id, api.api_id) = (tool.host_id, coalesce(endpoint.api_id, tool.source_api_id));

-- Add to the counts of words.
CREATE FUNCTION search_count(parts integer[], terms text[], numbers integer[], lengths float8[])
    RETURNS void LANGUAGE sql
    SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
    WITH delta AS MATERIALIZED (
        SELECT part_id, term, sum(docs) AS docs, sum(length) AS length
        FROM unnest(parts, terms, numbers, lengths) AS one (part_id, term, docs, length)
        GROUP BY part_id, term HAVING sum(docs) <> 0 OR sum(length) <> 0
    ), folded AS (
        DELETE FROM search_count_t WHERE ctid = ANY (ARRAY(
            SELECT old.ctid FROM delta JOIN search_count_t AS old
                ON old.part_id = delta.part_id AND old.term = delta.term COLLATE "C"
            FOR UPDATE OF old SKIP LOCKED))
        RETURNING part_id, term, docs, length
    )
    INSERT INTO search_count_t (part_id, term, docs, length)
    SELECT part_id, term, sum(docs), sum(length)
    FROM (SELECT * FROM delta UNION ALL SELECT * FROM folded) AS row
    GROUP BY part_id, term HAVING sum(docs) <> 0 OR abs(sum(length)) > 0.01;
$$;

-- Make the documents of these things what the view of their kind says now.
--
-- The planner may know nothing of these tables (a first import is one transaction): it is to look
-- each thing up, and plans anew each time, for as many as there are.
CREATE FUNCTION search_refresh(kind text, host_ids uuid[], entity_ids uuid[]) RETURNS void
    LANGUAGE plpgsql
    SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
#variable_conflict use_column
DECLARE
    gone integer[]; stale integer[]; changed uuid[];
    lost_parts integer[]; lost_terms text[]; lost_numbers integer[]; lost_lengths float8[];
    new_parts integer[]; new_terms text[]; new_numbers integer[]; new_lengths float8[];
BEGIN
    INSERT INTO search_part_t (host_id, entity_type)
    SELECT DISTINCT given.host_id, kind FROM unnest(host_ids) AS given (host_id)
    WHERE NOT EXISTS (SELECT FROM search_part_t AS part
        WHERE (part.host_id, part.entity_type) = (given.host_id, kind))
    ON CONFLICT DO NOTHING;

    EXECUTE format($sql$
        WITH given AS MATERIALIZED (
            SELECT part.part_id, key.host_id, key.entity_id
            FROM unnest($2, $3) AS key (host_id, entity_id)
            JOIN search_part_t AS part ON (part.host_id, part.entity_type) = (key.host_id, $1)
        ), source AS MATERIALIZED (
            SELECT given.part_id, given.entity_id, source.name, source.source, source.domain,
                source.namespace, source.tier, source.toolsets, source.scopes, source.weight,
                md5(row(source.name, source.title, source.description, source.source, source.tags,
                    source.parameters, source.parameter_texts)::text) AS digest
            FROM given JOIN %1$I AS source USING (host_id, entity_id) WHERE source.live
        ), inserted AS (
            INSERT INTO search_doc_t (part_id, entity_id, name, source, domain, namespace, tier,
                toolsets, scopes, weight, digest)
            SELECT * FROM source WHERE NOT EXISTS (SELECT FROM search_doc_t AS doc
                WHERE (doc.part_id, doc.entity_id) = (source.part_id, source.entity_id))
            RETURNING doc_id, entity_id
        ), reworded AS (
            SELECT doc.doc_id, doc.entity_id FROM search_doc_t AS doc JOIN source
                ON (doc.part_id, doc.entity_id) = (source.part_id, source.entity_id)
            WHERE doc.digest <> source.digest
        ), updated AS (
            UPDATE search_doc_t AS doc SET name = source.name, source = source.source,
                domain = source.domain, namespace = source.namespace, tier = source.tier,
                toolsets = source.toolsets, scopes = source.scopes, weight = source.weight,
                digest = source.digest
            FROM source
            WHERE (doc.part_id, doc.entity_id) = (source.part_id, source.entity_id)
                AND (doc.name, doc.source, doc.domain, doc.namespace, doc.tier, doc.toolsets,
                    doc.scopes, doc.weight, doc.digest) IS DISTINCT FROM
                    (source.name, source.source, source.domain, source.namespace, source.tier,
                    source.toolsets, source.scopes, source.weight, source.digest)
        ), deleted AS (
            DELETE FROM search_doc_t AS doc USING given
            WHERE (doc.part_id, doc.entity_id) = (given.part_id, given.entity_id)
                AND NOT EXISTS (SELECT FROM source
                    WHERE (source.part_id, source.entity_id) = (given.part_id, given.entity_id))
            RETURNING doc.doc_id
        )
        SELECT ARRAY(SELECT doc_id FROM deleted), ARRAY(SELECT doc_id FROM reworded),
            ARRAY(SELECT entity_id FROM inserted UNION SELECT entity_id FROM reworded)
        $sql$, kind || '_search_v')
    INTO gone, stale, changed USING kind, host_ids, entity_ids;

    WITH lost AS (
        DELETE FROM search_posting_t WHERE doc_id = ANY (gone || stale)
        RETURNING part_id, doc_id, term, tf
    ), counted AS (
        SELECT part_id, term, -count(*) AS docs, 0::float8 AS length FROM lost
        GROUP BY part_id, term
        UNION ALL
        SELECT part_id, '', -count(DISTINCT doc_id), -sum(tf) FROM lost GROUP BY part_id
    )
    SELECT array_agg(part_id), array_agg(term), array_agg(docs), array_agg(length)
    INTO lost_parts, lost_terms, lost_numbers, lost_lengths FROM counted;

    EXECUTE format($sql$
        WITH word AS MATERIALIZED (
            SELECT doc.part_id, doc.doc_id, found.term, found.tf
            FROM unnest($2, $3) AS key (host_id, entity_id)
            JOIN search_part_t AS part ON (part.host_id, part.entity_type) = (key.host_id, $1)
            JOIN search_doc_t AS doc ON (doc.part_id, doc.entity_id) = (part.part_id, key.entity_id)
            JOIN %1$I AS source
                ON (source.host_id, source.entity_id) = (key.host_id, key.entity_id)
            CROSS JOIN LATERAL search_terms(source.name, source.title, source.description,
                source.source, source.tags, source.parameters, source.parameter_texts) AS found
            WHERE key.entity_id = ANY ($4)
        ), added AS (
            INSERT INTO search_posting_t (part_id, doc_id, term, tf, length)
            SELECT part_id, doc_id, term, tf, sum(tf) OVER (PARTITION BY doc_id) FROM word
            ORDER BY part_id, term, doc_id
        ), counted AS (
            SELECT part_id, term, count(*) AS docs, 0::float8 AS length FROM word
            GROUP BY part_id, term
            UNION ALL
            SELECT part_id, '', count(DISTINCT doc_id), sum(tf) FROM word GROUP BY part_id
        )
        SELECT array_agg(part_id), array_agg(term), array_agg(docs), array_agg(length)
        FROM counted
        $sql$, kind || '_search_v')
    INTO new_parts, new_terms, new_numbers, new_lengths
    USING kind, host_ids, entity_ids, changed;

    PERFORM search_count(lost_parts || new_parts, lost_terms || new_terms,
        lost_numbers || new_numbers, lost_lengths || new_lengths);
END $$;

-- Queries whose calls succeeded, which may draw tools to them (search.feedback).
CREATE TABLE usage_query_t (
    host_id            uuid NOT NULL,
    entity_type        varchar(32) NOT NULL,
    entity_id          uuid NOT NULL,
    model              varchar(128) NOT NULL,
    principal          char(32) NOT NULL,
    slot               smallint NOT NULL CHECK (slot BETWEEN 0 AND 2),
    embedding          vector(384) NOT NULL,
    update_ts          timestamptz NOT NULL DEFAULT current_timestamp,
    PRIMARY KEY (host_id, entity_type, entity_id, model, principal, slot)
);
COMMENT ON TABLE usage_query_t IS
    'The last queries of a caller after which it called this with success, as vectors; three of each '
    'caller, so that none outweighs the others.';
COMMENT ON COLUMN usage_query_t.principal IS 'MD5 of whoever called.';

CREATE TABLE usage_embedding_t (
    host_id            uuid NOT NULL,
    entity_type        varchar(32) NOT NULL,
    entity_id          uuid NOT NULL,
    model              varchar(128) NOT NULL,
    embedding          vector(384) NOT NULL,
    principals         integer NOT NULL,
    update_ts          timestamptz NOT NULL DEFAULT current_timestamp,
    PRIMARY KEY (host_id, entity_type, entity_id, model)
);
COMMENT ON TABLE usage_embedding_t IS
    'Derived from usage_query_t: the mean of the callers'' means, of length 1, and how many they are.';

-- What is deleted.
CREATE FUNCTION usage_forget(kind text, host_ids uuid[], entity_ids uuid[]) RETURNS void
    LANGUAGE plpgsql
    SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
BEGIN
    DELETE FROM usage_query_t AS used
    USING unnest(host_ids, entity_ids) AS gone (host_id, entity_id)
    WHERE (used.host_id, used.entity_type, used.entity_id) = (gone.host_id, kind, gone.entity_id);
    DELETE FROM usage_embedding_t AS used
    USING unnest(host_ids, entity_ids) AS gone (host_id, entity_id)
    WHERE (used.host_id, used.entity_type, used.entity_id) = (gone.host_id, kind, gone.entity_id);
END $$;

CREATE FUNCTION tool_search() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    hosts uuid[]; ids uuid[];
BEGIN
    IF TG_OP = 'INSERT' THEN
        SELECT array_agg(host_id), array_agg(tool_id) INTO hosts, ids FROM new_row;
    ELSIF TG_OP = 'DELETE' THEN
        SELECT array_agg(host_id), array_agg(tool_id) INTO hosts, ids FROM old_row;
        PERFORM usage_forget('tool', hosts, ids);
    ELSE
        EXECUTE 'SELECT array_agg(host_id), array_agg(tool_id)'
            ' FROM new_row AS new JOIN old_row AS old USING (host_id, tool_id)'
            ' WHERE (new.active, new.held IS NULL, new.lifecycle_status, new.semantic_weight,'
            ' new.digest, new.tags, new.toolsets, new.binding, new.endpoint_id,'
            ' new.source_api_id,'
            ' new.routing_domain, new.semantic_namespace, new.sensitivity_tier) IS DISTINCT FROM'
            ' (old.active, old.held IS NULL, old.lifecycle_status, old.semantic_weight,'
            ' old.digest, old.tags, old.toolsets, old.binding, old.endpoint_id,'
            ' old.source_api_id,'
            ' old.routing_domain, old.semantic_namespace, old.sensitivity_tier)'
        INTO hosts, ids;
    END IF;
    IF ids IS NOT NULL THEN
        PERFORM search_refresh('tool', hosts, ids);
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER tool_search_insert AFTER INSERT ON tool_t
    REFERENCING NEW TABLE AS new_row
    FOR EACH STATEMENT EXECUTE FUNCTION tool_search();
CREATE TRIGGER tool_search_update AFTER UPDATE ON tool_t
    REFERENCING OLD TABLE AS old_row NEW TABLE AS new_row
    FOR EACH STATEMENT EXECUTE FUNCTION tool_search();
CREATE TRIGGER tool_search_delete AFTER DELETE ON tool_t
    REFERENCING OLD TABLE AS old_row
    FOR EACH STATEMENT EXECUTE FUNCTION tool_search();

-- The name of a source is among the words of its tools, and answers are narrowed by it.
CREATE FUNCTION api_search() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM search_refresh('tool', array_agg(tool.host_id), array_agg(tool.tool_id))
    FROM tool_t AS tool LEFT JOIN api_endpoint_t AS endpoint USING (host_id, endpoint_id)
    WHERE tool.host_id = NEW.host_id
        AND coalesce(endpoint.api_id, tool.source_api_id) = NEW.api_id
    HAVING count(*) > 0;
    RETURN NULL;
END $$;
CREATE TRIGGER api_search_name AFTER UPDATE OF name ON api_t
    FOR EACH ROW WHEN (NEW.name <> OLD.name) EXECUTE FUNCTION api_search();

-- The tools that there are.
DO $$
DECLARE
    batch record;
BEGIN
    FOR batch IN
        SELECT array_agg(host_id) AS hosts, array_agg(tool_id) AS ids
        FROM (SELECT host_id, tool_id, row_number() OVER (ORDER BY host_id, tool_id) / 500 AS number
            FROM tool_t WHERE active) AS tool
        GROUP BY number ORDER BY number
    LOOP
        PERFORM search_refresh('tool', batch.hosts, batch.ids);
    END LOOP;
END $$;

-- The word index that all this replaces.
DROP INDEX tool_search_ix;
ALTER TABLE tool_t DROP COLUMN search;
DROP FUNCTION tool_search(text, text, text, text[]);
