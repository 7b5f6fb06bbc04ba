-- The e-mail address that a provider vouches for, by which its identity assertions may name a person
-- (`id_jag_email`); NULL without that setting.
ALTER TABLE login_person_t ADD COLUMN email text;
