-- How long a job may hold devices, 0 for ever, and for how long its former starts did.
ALTER TABLE jobs ADD COLUMN time_limit_ms INTEGER NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN held_ms INTEGER NOT NULL DEFAULT 0;
