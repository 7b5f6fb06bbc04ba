-- As in 0017, but each statement names the tables of its kind of document alone: a connection reads
-- the catalogs of all tables that a statement names when it runs it for the first time.
CREATE OR REPLACE FUNCTION search_refresh(
    kind text, host_ids uuid[], entity_ids uuid[], owners text[] DEFAULT NULL
) RETURNS void
    LANGUAGE plpgsql
    SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
#variable_conflict use_column
DECLARE
    weights real[]; is_listed boolean;
    gone integer[]; changed integer[]; changed_ids uuid[];
    lost_parts integer[]; lost_terms text[]; lost_numbers integer[]; lost_lengths float8[];
    new_parts integer[]; new_terms text[]; new_numbers integer[]; new_lengths float8[];
BEGIN
    SELECT field_weights, wordlists INTO weights, is_listed
    FROM search_kind_t WHERE entity_type = kind;
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

    IF gone IS NOT NULL AND is_listed THEN
        WITH wordlist AS (
            DELETE FROM search_wordlist_t AS wordlist
            USING unnest(lost_parts, gone) AS doc (part_id, doc_id)
            WHERE (wordlist.part_id, wordlist.doc_id) = (doc.part_id, doc.doc_id)
            RETURNING wordlist.part_id, wordlist.doc_id, wordlist.tf, wordlist.words
        ), lost AS (
            SELECT part_id, doc_id, word.term, tf
            FROM wordlist CROSS JOIN LATERAL string_to_table(btrim(words), ' ') AS word (term)
        ), counted AS (
            SELECT part_id, term, -count(*) AS docs, 0::float8 AS length FROM lost
            GROUP BY part_id, term
            UNION ALL
            SELECT part_id, '', -count(DISTINCT doc_id), -sum(tf) FROM lost GROUP BY part_id
        )
        SELECT array_agg(part_id), array_agg(term), array_agg(docs), array_agg(length)
        INTO lost_parts, lost_terms, lost_numbers, lost_lengths FROM counted;
    ELSIF gone IS NOT NULL THEN
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
    END IF;
    IF new_parts IS NULL AND lost_parts IS NULL THEN
        RETURN;
    END IF;

    IF new_parts IS NOT NULL THEN
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
            %2$s
        ), counted AS (
            SELECT part_id, term, count(*) AS docs, 0::float8 AS length FROM word
            GROUP BY part_id, term
            UNION ALL
            SELECT part_id, '', count(DISTINCT doc_id), sum(tf) FROM word GROUP BY part_id
        )
        SELECT array_agg(part_id), array_agg(term), array_agg(docs), array_agg(length)
        FROM counted
        $sql$, kind || '_search_v', CASE WHEN is_listed THEN $sql$
            INSERT INTO search_wordlist_t (part_id, doc_id, tf, length, words)
            SELECT part_id, doc_id, tf, sum(sum(tf)) OVER (PARTITION BY part_id, doc_id),
                search_wordlist(tf, string_agg(' ' || term, '' ORDER BY term)) FROM word
            GROUP BY part_id, doc_id, tf ORDER BY part_id, doc_id, tf
            $sql$ ELSE $sql$
            INSERT INTO search_posting_t (part_id, doc_id, term, tf, length)
            SELECT part_id, doc_id, term, tf, sum(tf) OVER (PARTITION BY part_id, doc_id) FROM word
            ORDER BY part_id, term, doc_id
            $sql$ END)
        INTO new_parts, new_terms, new_numbers, new_lengths
        USING new_parts, changed, changed_ids, weights;
    END IF;

    PERFORM search_count(lost_parts || new_parts, lost_terms || new_terms,
        lost_numbers || new_numbers, lost_lengths || new_lengths);
END $$;
