-- How long each rank's own work and its waiting for others took, over stretches of steps: few for a job, however long it is.
CREATE TABLE rank_times (
  job INTEGER NOT NULL,
  generation INTEGER NOT NULL,
  first_step INTEGER NOT NULL,
  steps INTEGER NOT NULL,  -- of the stretch
  ranks INTEGER NOT NULL,
  data BLOB NOT NULL,      -- server/store/history_codec.h: of each rank seconds of own work, then of waiting, then steps
  PRIMARY KEY (job, generation, first_step)
) WITHOUT ROWID;
