-- One-time codes of users (TOTP, RFC 6238): the secret, encrypted with `secrets.key`; the last step that
-- was used, so that each code is good once at all nodes; digests of codes for when the device is lost.
ALTER TABLE login_user_t ADD COLUMN totp bytea;
ALTER TABLE login_user_t ADD COLUMN totp_step bigint;
ALTER TABLE login_user_t ADD COLUMN recovery bytea[];
