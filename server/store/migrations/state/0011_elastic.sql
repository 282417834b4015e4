-- Gangs that may have more nodes than they need: how many at most (0: no more than `nodes`), and how long a start lasts
-- before it may grow.

ALTER TABLE jobs ADD COLUMN max_nodes INTEGER NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN resize_interval_ms INTEGER NOT NULL DEFAULT 600000;
