CREATE TABLE toy_sound_t (sound text PRIMARY KEY);
