-- Since when a node renews a person's token at their provider, whose refresh tokens may be good once.
ALTER TABLE login_t ADD COLUMN renewing_ts timestamptz;
