-- Runs that somebody started by hand: the name of the token that they report with, which no other job has, where they
-- run (JSON, rank 0's host first), and when they were last heard.
ALTER TABLE jobs ADD COLUMN by_hand_token TEXT NOT NULL DEFAULT '';
ALTER TABLE jobs ADD COLUMN by_hand_hosts TEXT NOT NULL DEFAULT '[]';
ALTER TABLE jobs ADD COLUMN last_heard_us INTEGER NOT NULL DEFAULT 0;
