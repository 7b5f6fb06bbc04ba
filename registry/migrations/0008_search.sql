-- Word index of what is searched, for ranking with BM25F (Robertson and Zaragoza 2009, 3.6), and
-- the columns that results are filtered by. Written by triggers, in the transaction that writes the
-- entity; read by registry/search.
--
-- Only what can be found now is indexed: no inactive, held or retired tool. A kind of entity has a
-- view <kind>_search_v with the columns of tool_search_v, and triggers that call search_refresh
-- (see search_kind_watch). Words are English stems; identifiers are split into words, here and in
-- queries.

CREATE TABLE search_part_t (
    part_id            integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    host_id            uuid NOT NULL,
    entity_type        varchar(32) NOT NULL,
    owner              text COLLATE "C" NOT NULL DEFAULT '',
    UNIQUE (host_id, entity_type, owner)
);
COMMENT ON TABLE search_part_t IS
    'Partitions of the index: a kind of entity of a tenant and an owner, and its number in the '
    'tables below.';
COMMENT ON COLUMN search_part_t.owner IS
    'Whose entities these are, for kinds that have owners: a search reads the partitions of the '
    'permitted owners, and document frequencies are separate for each. Empty: the tenant''s.';

CREATE TABLE search_doc_t (
    doc_id             integer GENERATED ALWAYS AS IDENTITY,
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
    valid_from         timestamptz,
    valid_to           timestamptz,
    facets             jsonb,
    digest             char(32) NOT NULL,
    PRIMARY KEY (part_id, doc_id),
    UNIQUE (part_id, entity_id)
);
COMMENT ON TABLE search_doc_t IS 'Indexed entities, with the columns that results are filtered by.';
COMMENT ON COLUMN search_doc_t.source IS 'Name of the source; empty: made by hand.';
COMMENT ON COLUMN search_doc_t.toolsets IS 'Toolsets that the description assigns the tool to.';
COMMENT ON COLUMN search_doc_t.scopes IS 'Scopes of which a caller needs one; empty: no scope.';
COMMENT ON COLUMN search_doc_t.weight IS 'Factor of the score.';
COMMENT ON COLUMN search_doc_t.valid_from IS
    'Time from which the entity is found; null: always. For kinds that expire.';
COMMENT ON COLUMN search_doc_t.valid_to IS
    'Time from which the entity is no longer found; null: never. For kinds that expire.';
COMMENT ON COLUMN search_doc_t.facets IS 'What else results are filtered by, by containment.';
COMMENT ON COLUMN search_doc_t.digest IS 'MD5 of the indexed texts.';

-- Without foreign keys, which would be checked for each word of each document. The primary key
-- contains all that a search reads; vacuum makes such reads skip the heap.
CREATE TABLE search_posting_t (
    part_id            integer NOT NULL,
    doc_id             integer NOT NULL,
    tf                 real NOT NULL,
    length             real NOT NULL,
    term               text COLLATE "C" NOT NULL,
    PRIMARY KEY (part_id, term, doc_id) INCLUDE (tf, length)
) WITH (autovacuum_vacuum_insert_scale_factor = 0.05, autovacuum_vacuum_scale_factor = 0.05);
CREATE INDEX search_posting_doc_ix ON search_posting_t (part_id, doc_id);
COMMENT ON TABLE search_posting_t IS 'Words of each document.';
COMMENT ON COLUMN search_posting_t.tf IS
    'Term frequency: occurrences of the word, each times the weight of its field.';
COMMENT ON COLUMN search_posting_t.length IS
    'Sum of tf over all words of the document; repeated here, so that ranking joins nothing.';

CREATE TABLE search_count_t (
    part_id            integer NOT NULL,
    term               text COLLATE "C" NOT NULL,
    docs               integer NOT NULL,
    length             double precision NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.1);
CREATE INDEX search_count_ix ON search_count_t (part_id, term);
COMMENT ON TABLE search_count_t IS
    'Document frequency of each word: the sum of its rows. The empty word stands for all '
    'documents. Writers add rows, and merge into theirs those that no other writer has locked, so '
    'that none waits for another.';
COMMENT ON COLUMN search_count_t.length IS
    'Sum of the lengths of all documents; of the empty word only.';

-- Words of an identifier: 'repos_list-forUser' gives 'repos list for user'.
CREATE FUNCTION identifier_words(identifier text) RETURNS text
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    RETURN btrim(lower(regexp_replace(regexp_replace(regexp_replace(
        identifier,
        '([[:lower:][:digit:]])([[:upper:]])', '\1 \2', 'g'),
        '([[:upper:]])([[:upper:]][[:lower:]])', '\1 \2', 'g'),
        '[^[:alnum:]]+', ' ', 'g')));

-- Each two characters in a row of scripts that are written without spaces (Chinese, Japanese,
-- Korean): 'ABC de' gives 'AB BC', of such characters.
CREATE FUNCTION search_bigrams(given text) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN (SELECT string_agg(pair[1], ' ') FROM (
        SELECT regexp_matches(given,
            '[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3\uf900-\ufaff]{2}', 'g')
        UNION ALL
        SELECT regexp_matches(regexp_replace(given,
            '(?<![\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3\uf900-\ufaff])'
            '[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3\uf900-\ufaff]', ' ', 'g'),
            '[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3\uf900-\ufaff]{2}', 'g')
    ) AS found (pair));

-- Words of a text, identifiers in it split; each character of a script that is written without
-- spaces is a word, and each two of them are.
CREATE FUNCTION search_words(given text) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN CASE WHEN octet_length(given) > length(given)
        THEN concat_ws(' ', regexp_replace(identifier_words(given),
            '([\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3\uf900-\ufaff])', ' \1 ', 'g'),
            search_bigrams(given))
        ELSE identifier_words(given) END;

-- Terms of a document with their weighted frequency. Fields are cut: what lies behind does not help
-- to find anything, and a tsvector has limits of its own.
CREATE FUNCTION search_terms(
    name text, title text, description text, source text, tags text, parameters text,
    parameter_texts text, weights real[]
) RETURNS TABLE (term text, tf real)
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT word.lexeme, sum(field.weight * cardinality(word.positions))::real
    FROM (VALUES
        (name, weights[1]), (title, weights[2]), (description, weights[3]), (source, weights[4]),
        (tags, weights[5]), (parameters, weights[6]), (parameter_texts, weights[7])
    ) AS field (text, weight)
    CROSS JOIN LATERAL unnest(to_tsvector('pg_catalog.english',
        search_words(left(field.text, 10000)))) AS word
    GROUP BY word.lexeme;
END;

-- Scopes of which callers of a tool need one, of whatever kind it is; no other kind has the member.
CREATE FUNCTION binding_scopes(binding jsonb) RETURNS text[]
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN CASE
        WHEN binding ->> 'scope' ~ '\S'
            AND NOT coalesce((binding ->> 'skip_auth')::boolean, false)
        THEN array_remove(regexp_split_to_array(binding ->> 'scope', '\s+'), '')
        ELSE '{}' END;

CREATE VIEW tool_search_v AS
SELECT tool.host_id, tool.tool_id AS entity_id, ''::text AS owner,
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
        AS weight,
    NULL::timestamptz AS valid_from, NULL::timestamptz AS valid_to, NULL::jsonb AS facets
FROM tool_t AS tool
LEFT JOIN api_endpoint_t AS endpoint
    ON (endpoint.host_id, endpoint.endpoint_id) = (tool.host_id, tool.endpoint_id)
LEFT JOIN api_t AS api
    ON (api.host_id, api.api_id) = (tool.host_id, coalesce(endpoint.api_id, tool.source_api_id));
COMMENT ON VIEW tool_search_v IS 'Texts and filter columns of tools; live: can be found.';

CREATE VIEW skill_search_v AS
SELECT host_id, skill_id AS entity_id, ''::text AS owner, active AS live, name::text AS name, NULL::text AS title,
    description::text AS description, ''::text AS source, NULL::text AS tags,
    NULL::text AS parameters, left(content_markdown, 4000) AS parameter_texts,
    NULL::text AS domain, NULL::text AS namespace, NULL::text AS tier,
    '{}'::text[] AS toolsets, '{}'::text[] AS scopes, 1::real AS weight,
    NULL::timestamptz AS valid_from, NULL::timestamptz AS valid_to, NULL::jsonb AS facets
FROM skill_t;
COMMENT ON VIEW skill_search_v IS 'Texts and filter columns of skills, as in tool_search_v.';

-- Adds to the document frequencies.
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

-- Synchronises the documents of these entities with the view of their kind. `owners`: those that
-- the entities have and had, for kinds with owners; null: none has one.
--
-- The planner may have no statistics of these tables (a first import is one transaction): it looks
-- up each entity by index, and EXECUTE plans anew for as many as there are. OFFSET 0 keeps it from
-- joining what a view joins in another order, all of a tenant first.
CREATE FUNCTION search_refresh(
    kind text, host_ids uuid[], entity_ids uuid[], owners text[] DEFAULT NULL
) RETURNS void
    LANGUAGE plpgsql
    SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
#variable_conflict use_column
DECLARE
    weights real[] := (SELECT field_weights FROM search_kind_t WHERE entity_type = kind);
    gone integer[]; changed integer[]; changed_ids uuid[];
    lost_parts integer[]; lost_terms text[]; lost_numbers integer[]; lost_lengths float8[];
    new_parts integer[]; new_terms text[]; new_numbers integer[]; new_lengths float8[];
BEGIN
    IF weights IS NULL THEN
        RAISE EXCEPTION 'there is no kind of entity %; see search_kind_add', kind;
    END IF;
    INSERT INTO search_part_t (host_id, entity_type, owner)
    SELECT DISTINCT given.host_id, kind, coalesce(given.owner, '')
    FROM unnest(host_ids, owners) AS given (host_id, owner)
    WHERE NOT EXISTS (SELECT FROM search_part_t AS part
        WHERE (part.host_id, part.entity_type, part.owner)
            = (given.host_id, kind, coalesce(given.owner, '')))
    ON CONFLICT DO NOTHING;

    EXECUTE format($sql$
        WITH given AS MATERIALIZED (
            SELECT DISTINCT part.part_id, part.owner, key.host_id, key.entity_id
            FROM unnest($2, $3, $4) AS key (host_id, entity_id, owner)
            JOIN search_part_t AS part ON (part.host_id, part.entity_type, part.owner)
                = (key.host_id, $1, coalesce(key.owner, ''))
        ), source AS MATERIALIZED (
            SELECT given.part_id, given.entity_id, source.name, source.source, source.domain,
                source.namespace, source.tier, source.toolsets, source.scopes, source.weight,
                source.valid_from, source.valid_to, source.facets,
                md5(row(source.name, source.title, source.description, source.source, source.tags,
                    source.parameters, source.parameter_texts)::text) AS digest
            FROM given CROSS JOIN LATERAL (SELECT * FROM %1$I AS one
                WHERE one.host_id = given.host_id AND one.entity_id = given.entity_id OFFSET 0
            ) AS source
            WHERE source.live AND source.owner = given.owner
        ), inserted AS (
            INSERT INTO search_doc_t (part_id, entity_id, name, source, domain, namespace, tier,
                toolsets, scopes, weight, valid_from, valid_to, facets, digest)
            SELECT * FROM source WHERE NOT EXISTS (SELECT FROM search_doc_t AS doc
                WHERE (doc.part_id, doc.entity_id) = (source.part_id, source.entity_id))
            RETURNING part_id, doc_id, entity_id
        ), reworded AS (
            SELECT doc.part_id, doc.doc_id, doc.entity_id FROM search_doc_t AS doc JOIN source
                ON (doc.part_id, doc.entity_id) = (source.part_id, source.entity_id)
            WHERE doc.digest <> source.digest
        ), updated AS (
            UPDATE search_doc_t AS doc SET name = source.name, source = source.source,
                domain = source.domain, namespace = source.namespace, tier = source.tier,
                toolsets = source.toolsets, scopes = source.scopes, weight = source.weight,
                valid_from = source.valid_from, valid_to = source.valid_to,
                facets = source.facets, digest = source.digest
            FROM source
            WHERE (doc.part_id, doc.entity_id) = (source.part_id, source.entity_id)
                AND (doc.name, doc.source, doc.domain, doc.namespace, doc.tier, doc.toolsets,
                    doc.scopes, doc.weight, doc.valid_from, doc.valid_to, doc.facets, doc.digest)
                    IS DISTINCT FROM
                    (source.name, source.source, source.domain, source.namespace, source.tier,
                    source.toolsets, source.scopes, source.weight, source.valid_from,
                    source.valid_to, source.facets, source.digest)
        ), deleted AS (
            DELETE FROM search_doc_t AS doc USING given
            WHERE (doc.part_id, doc.entity_id) = (given.part_id, given.entity_id)
                AND NOT EXISTS (SELECT FROM source
                    WHERE (source.part_id, source.entity_id) = (given.part_id, given.entity_id))
            RETURNING doc.part_id, doc.doc_id
        ), lost AS (
            SELECT * FROM deleted UNION ALL SELECT part_id, doc_id FROM reworded
        ), new AS (
            SELECT * FROM inserted UNION ALL SELECT * FROM reworded
        )
        SELECT (SELECT array_agg(part_id ORDER BY doc_id) FROM lost),
            (SELECT array_agg(doc_id ORDER BY doc_id) FROM lost),
            (SELECT array_agg(part_id ORDER BY doc_id) FROM new),
            (SELECT array_agg(doc_id ORDER BY doc_id) FROM new),
            (SELECT array_agg(entity_id ORDER BY doc_id) FROM new)
        $sql$, kind || '_search_v')
    INTO lost_parts, gone, new_parts, changed, changed_ids USING kind, host_ids, entity_ids, owners;

    WITH lost AS (
        DELETE FROM search_posting_t AS posting
        USING unnest(lost_parts, gone) AS doc (part_id, doc_id)
        WHERE (posting.part_id, posting.doc_id) = (doc.part_id, doc.doc_id)
        RETURNING posting.part_id, posting.doc_id, posting.term, posting.tf
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
            SELECT new.part_id, new.doc_id, found.term, found.tf
            FROM unnest($1, $2, $3) AS new (part_id, doc_id, entity_id)
            JOIN search_part_t AS part USING (part_id)
            CROSS JOIN LATERAL (SELECT * FROM %1$I AS one
                WHERE one.host_id = part.host_id AND one.entity_id = new.entity_id OFFSET 0
            ) AS source
            CROSS JOIN LATERAL search_terms(source.name, source.title, source.description,
                source.source, source.tags, source.parameters, source.parameter_texts, $4) AS found
        ), added AS (
            INSERT INTO search_posting_t (part_id, doc_id, term, tf, length)
            SELECT part_id, doc_id, term, tf, sum(tf) OVER (PARTITION BY part_id, doc_id) FROM word
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
    USING new_parts, changed, changed_ids, weights;

    PERFORM search_count(lost_parts || new_parts, lost_terms || new_terms,
        lost_numbers || new_numbers, lost_lengths || new_lengths);
END $$;

-- Indexes the tools of a statement.
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

-- Indexes the tools of a source that is renamed: its name is among their words and filters.
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

-- Indexes the entities of a statement and queues them for embedding. Arguments: their kind, the
-- column of their id, and that of their owner where they have one. An update that leaves the texts
-- alone finds their hashes unchanged and does nothing.
CREATE FUNCTION entity_found() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    kind CONSTANT text := TG_ARGV[0];
    keys CONSTANT text := format('array_agg(host_id), array_agg(%I), array_agg(%s)', TG_ARGV[1],
        CASE TG_NARGS WHEN 3 THEN quote_ident(TG_ARGV[2]) ELSE '''''::text' END);
    hosts uuid[]; ids uuid[]; owners text[]; hashes text[];
    old_hosts uuid[]; old_ids uuid[]; old_owners text[];
BEGIN
    IF TG_OP <> 'INSERT' THEN
        EXECUTE format('SELECT %s FROM old_row', keys) INTO old_hosts, old_ids, old_owners;
    END IF;
    IF TG_OP = 'DELETE' AND old_ids IS NOT NULL THEN
        PERFORM embedding_forget(kind, old_hosts, old_ids);
        PERFORM usage_forget(kind, old_hosts, old_ids);
        PERFORM search_refresh(kind, old_hosts, old_ids, old_owners);
    END IF;
    IF TG_OP = 'DELETE' THEN
        RETURN NULL;
    END IF;

    EXECUTE format('SELECT %s FROM new_row', keys) INTO hosts, ids, owners;
    IF ids IS NULL THEN
        RETURN NULL;
    END IF;
    PERFORM search_refresh(kind, hosts || old_hosts, ids || old_ids, owners || old_owners);
    EXECUTE format('SELECT array_agg(host_id), array_agg(entity_id),'
        ' array_agg(source_hash(source_text)) FROM unnest($1, $2) AS new (host_id, entity_id)'
        ' CROSS JOIN LATERAL (SELECT source_text FROM %I AS one WHERE one.host_id = new.host_id'
        ' AND one.entity_id = new.entity_id AND active OFFSET 0) AS source', kind || '_source_v')
    INTO old_hosts, old_ids, hashes USING hosts, ids;
    IF old_ids IS NOT NULL THEN
        PERFORM embedding_queue(kind, old_hosts, old_ids, hashes);
    END IF;
    EXECUTE format('SELECT array_agg(host_id), array_agg(entity_id)'
        ' FROM unnest($1, $2) AS new (host_id, entity_id)'
        ' CROSS JOIN LATERAL (SELECT FROM %I AS one WHERE one.host_id = new.host_id'
        ' AND one.entity_id = new.entity_id AND NOT active OFFSET 0) AS source',
        kind || '_source_v')
    INTO hosts, ids USING hosts, ids;
    IF ids IS NOT NULL THEN
        PERFORM embedding_leave(kind, hosts, ids);
    END IF;
    RETURN NULL;
END $$;

-- Makes the triggers of a kind of entity on its table: every write is indexed and embedded. For
-- migrations, also of other components. Tools have triggers of their own, which react
-- to the relevant columns only.
CREATE FUNCTION search_kind_watch(
    kind text, watched regclass, id_column name, owner_column name DEFAULT NULL
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    operation text;
BEGIN
    FOREACH operation IN ARRAY ARRAY['INSERT', 'UPDATE', 'DELETE'] LOOP
        EXECUTE format('CREATE TRIGGER %I AFTER %s ON %s REFERENCING %s'
            ' FOR EACH STATEMENT EXECUTE FUNCTION entity_found(%s)',
            kind || '_found_' || lower(operation), operation, watched,
            concat_ws(' ', CASE WHEN operation <> 'INSERT' THEN 'OLD TABLE AS old_row' END,
                CASE WHEN operation <> 'DELETE' THEN 'NEW TABLE AS new_row' END),
            concat_ws(', ', quote_literal(kind), quote_literal(id_column),
                quote_literal(owner_column)));
    END LOOP;
END $$;
SELECT search_kind_watch('skill', 'skill_t', 'skill_id');
