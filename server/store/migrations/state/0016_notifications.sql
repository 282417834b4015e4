-- What people are told of jobs. A row is written with the change that it tells of, and goes when it is delivered or given up.
CREATE TABLE notices (
  id TEXT PRIMARY KEY, -- of the delivery; receivers know by it what they have had
  job INTEGER NOT NULL,
  target TEXT NOT NULL,
  body TEXT NOT NULL,  -- JSON
  created_us INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX notices_by_job ON notices (job);
-- `notify` of the job files that have it: "ops:failed,stalled mail:finished"; an empty text is nobody.
CREATE TABLE job_notify (
  job INTEGER PRIMARY KEY,
  rules TEXT NOT NULL
);
