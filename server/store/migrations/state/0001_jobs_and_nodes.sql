-- What the daemon may never lose. Times are microseconds since 1970 UTC; states and reasons are the numbers of
-- proto/imgd/v1/common.proto.

CREATE TABLE meta (
  key TEXT PRIMARY KEY,
  value TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE jobs (
  id INTEGER PRIMARY KEY,
  name TEXT NOT NULL,
  owner TEXT NOT NULL,
  priority INTEGER NOT NULL,
  nodes INTEGER NOT NULL,
  ranks_per_node INTEGER NOT NULL,
  grace_ms INTEGER NOT NULL,
  max_restarts INTEGER NOT NULL,
  checkpoint_dir TEXT NOT NULL,
  state INTEGER NOT NULL,
  reason INTEGER NOT NULL,
  reason_text TEXT NOT NULL,
  generation INTEGER NOT NULL,
  last_writer INTEGER NOT NULL,
  restarts INTEGER NOT NULL,
  failures INTEGER NOT NULL,
  failures_in_row INTEGER NOT NULL,
  submitted_us INTEGER NOT NULL,
  started_us INTEGER NOT NULL,
  ended_us INTEGER NOT NULL,
  retry_at_us INTEGER NOT NULL,
  run TEXT NOT NULL -- JSON: where the ranks of the latest start are and how they ended
);
CREATE INDEX jobs_by_state ON jobs (state, id);
CREATE INDEX jobs_by_owner ON jobs (owner, id);
CREATE INDEX jobs_by_end ON jobs (ended_us, id) WHERE state IN (6, 7, 8);

-- Apart from jobs, so that listings need not read past it.
CREATE TABLE job_files (
  job INTEGER PRIMARY KEY,
  yaml TEXT NOT NULL
);

CREATE TABLE job_events (
  job INTEGER NOT NULL,
  number INTEGER NOT NULL,
  time_us INTEGER NOT NULL,
  generation INTEGER NOT NULL,
  from_state INTEGER NOT NULL, -- 0 for a new job
  to_state INTEGER NOT NULL,
  reason INTEGER NOT NULL,
  text TEXT NOT NULL,
  actor TEXT NOT NULL,
  PRIMARY KEY (job, number)
) WITHOUT ROWID;

CREATE TABLE checkpoints (
  job INTEGER NOT NULL,
  ordinal INTEGER NOT NULL, -- grows with acceptance
  path TEXT NOT NULL,
  step INTEGER NOT NULL,
  generation INTEGER NOT NULL,
  size_bytes INTEGER NOT NULL,
  manifest_sha256 TEXT NOT NULL,
  time_us INTEGER NOT NULL,
  PRIMARY KEY (job, ordinal)
) WITHOUT ROWID;

CREATE TABLE nodes (
  name TEXT PRIMARY KEY,
  agent_id TEXT NOT NULL,
  agent_version TEXT NOT NULL,
  address TEXT NOT NULL,
  filesystem_id TEXT NOT NULL,
  devices TEXT NOT NULL,        -- JSON
  shared_folders TEXT NOT NULL, -- JSON
  joined_us INTEGER NOT NULL,
  last_heartbeat_us INTEGER NOT NULL,
  state INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE idempotency_keys (
  key TEXT PRIMARY KEY,
  job INTEGER NOT NULL
) WITHOUT ROWID;

-- How far each rank's trainer events are stored; here, and not beside the metrics, because the jobs' states
-- depend on them.
CREATE TABLE event_streams (
  job INTEGER NOT NULL,
  generation INTEGER NOT NULL,
  rank INTEGER NOT NULL,
  sequence INTEGER NOT NULL,
  PRIMARY KEY (job, generation, rank)
) WITHOUT ROWID;
