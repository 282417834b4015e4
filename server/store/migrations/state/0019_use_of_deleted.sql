-- What a job that was deleted took, of each of its starts, so that what was used on a day stays: nothing tells which job.
CREATE TABLE use_of_deleted (
  owner TEXT NOT NULL,
  device_seconds REAL NOT NULL,
  cost REAL NOT NULL,
  started_us INTEGER NOT NULL,
  ended_us INTEGER NOT NULL
);
CREATE INDEX use_of_deleted_by_end ON use_of_deleted (ended_us);
