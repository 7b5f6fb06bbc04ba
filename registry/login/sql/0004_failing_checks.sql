-- Since when checks of a person at their provider fail; NULL: the last one succeeded.
ALTER TABLE login_t ADD COLUMN failing_ts timestamptz;
