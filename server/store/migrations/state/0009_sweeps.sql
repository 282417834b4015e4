-- What jobs wait for, and sweeps: jobs that were made of one file.

-- Jobs (JSON) that it comes after, the time that it waits for (0 for none), the sweep that it belongs to (0 for none) by
-- the number of the sweep's first job, and the settings (JSON) that it has of its own there.
ALTER TABLE jobs ADD COLUMN after_jobs TEXT NOT NULL DEFAULT '[]';
ALTER TABLE jobs ADD COLUMN not_before_us INTEGER NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN sweep INTEGER NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN sweep_settings TEXT NOT NULL DEFAULT '[]';
-- For `after` with a name.
CREATE INDEX jobs_by_name ON jobs (name, id);

-- Its jobs have the numbers from id on.
CREATE TABLE sweeps (
  id INTEGER PRIMARY KEY,
  name TEXT NOT NULL,
  owner TEXT NOT NULL,
  members INTEGER NOT NULL,
  max_running INTEGER NOT NULL, -- 0 for any number
  halving TEXT NOT NULL,        -- JSON; empty for none
  submitted_us INTEGER NOT NULL,
  yaml TEXT NOT NULL            -- as submitted
);
CREATE INDEX sweeps_by_name ON sweeps (name, id);

-- What members had when they reached a rung of the halving.
CREATE TABLE sweep_results (
  sweep INTEGER NOT NULL,
  rung INTEGER NOT NULL,
  job INTEGER NOT NULL,
  value REAL, -- NULL for what is no number
  PRIMARY KEY (sweep, rung, job)
) WITHOUT ROWID;
