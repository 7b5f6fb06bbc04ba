-- Who made a key decides on no call that is made with it, and neither does who made that one's key.

ALTER TABLE api_key_t ADD COLUMN makers text[] NOT NULL DEFAULT '{}';
COMMENT ON COLUMN api_key_t.makers IS
    'The principal who made the key; where that one came with a key, also the makers of that key.';

ALTER TABLE approval_t ADD COLUMN makers text[] NOT NULL DEFAULT '{}';
COMMENT ON COLUMN approval_t.makers IS
    'The makers of the key that the call came with, in order. None of them may agree to it.';
