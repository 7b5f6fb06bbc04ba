-- A call that is not made any more takes back its request of an approval, which others may wait for.

ALTER TABLE approval_t ADD COLUMN requests integer NOT NULL DEFAULT 1;
COMMENT ON COLUMN approval_t.requests IS
    'How often the call was made while this waits: it goes when all have taken their requests back.';
