-- The history of metrics and other events of jobs, and the index of their logs.

CREATE TABLE events (
  job INTEGER NOT NULL,
  number INTEGER NOT NULL, -- one count with state.db's job_events
  generation INTEGER NOT NULL,
  rank INTEGER NOT NULL,
  sequence INTEGER NOT NULL, -- the trainer's own; 0 for a rank's exit
  kind INTEGER NOT NULL,     -- field number of JobEvent.event
  time_us INTEGER NOT NULL,
  payload BLOB NOT NULL,     -- that field's message
  PRIMARY KEY (job, number)
) WITHOUT ROWID;
-- The same event is stored once, however often a crash makes an agent report it.
CREATE UNIQUE INDEX events_by_source ON events (job, generation, rank, sequence);
CREATE INDEX events_by_kind ON events (job, kind, number);

CREATE TABLE log_streams (
  job INTEGER NOT NULL,
  generation INTEGER NOT NULL,
  rank INTEGER NOT NULL,
  last_line INTEGER NOT NULL,
  segment INTEGER NOT NULL,       -- number of the file that is being written
  segment_bytes INTEGER NOT NULL, -- how much of it is stored; what follows in the file is not
  PRIMARY KEY (job, generation, rank)
) WITHOUT ROWID;
