-- The figures of step reports, for drawing: every value of them, and what is the least, greatest and last of 8, 64, 512
-- ... of them. See server/store/history.h.

CREATE TABLE history (
  job INTEGER NOT NULL,
  generation INTEGER NOT NULL,
  figure INTEGER NOT NULL, -- server/store/history.cc has their numbers
  level INTEGER NOT NULL,  -- 0: values; l: least, greatest and last of 8^l of them each
  first INTEGER NOT NULL,  -- which value of that start is the first in here, from 0
  data BLOB NOT NULL,      -- server/store/history_codec.h
  UNIQUE (job, generation, figure, level, first)
);

-- Which step reports are in there; those after them are in `events` alone.
CREATE TABLE history_runs (
  job INTEGER NOT NULL,
  generation INTEGER NOT NULL,
  reports INTEGER NOT NULL,     -- of this start
  last_number INTEGER NOT NULL, -- of the event
  first_step REAL NOT NULL,     -- of this start's first report
  first_epoch REAL NOT NULL,
  first_time_us REAL NOT NULL,
  PRIMARY KEY (job, generation)
) WITHOUT ROWID;
