-- Removes names from chunks in milliseconds: the function of 0004 compared all chunks of a name with all of
-- them again, which took seconds for some hundred chunks while their rows were locked. Rows are still
-- taken in the order of their chunks, as by whoever deletes documents.
CREATE OR REPLACE FUNCTION knowledge_unname(host uuid, collection uuid, given text[])
    RETURNS SETOF text LANGUAGE plpgsql AS $$
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
    DELETE FROM knowledge_named_t AS named
    WHERE named.host_id = host AND named.chunk_id = ANY (chunks) AND named.norms <@ given;
    UPDATE knowledge_named_t AS named SET
        (norms, roles, starts, ends, types, names, methods, descriptions) = (
            SELECT array_agg(norm ORDER BY place), array_agg(role ORDER BY place),
                array_agg(start_byte ORDER BY place), array_agg(end_byte ORDER BY place),
                array_agg(type ORDER BY place), array_agg(name ORDER BY place),
                array_agg(method ORDER BY place), CASE WHEN count(description) > 0
                    THEN array_agg(description ORDER BY place) END
            FROM unnest(named.norms, named.roles, named.starts, named.ends, named.types,
                named.names, named.methods, named.descriptions) WITH ORDINALITY
                AS mention (norm, role, start_byte, end_byte, type, name, method, description, place)
            WHERE mention.norm <> ALL (given))
    WHERE named.host_id = host AND named.chunk_id = ANY (chunks) AND named.norms && given;
END $$;
