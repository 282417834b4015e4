-- SHA-256 of the job file as it was sent with the key: what is stored has what policies and data sets' addresses made of
-- it. Empty of keys from before, and of runs by hand, whose files are stored as they come.
ALTER TABLE idempotency_keys ADD COLUMN content TEXT NOT NULL DEFAULT '';
