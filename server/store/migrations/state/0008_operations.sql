-- What people asked of nodes and jobs, and the record of decisions.

ALTER TABLE nodes ADD COLUMN aside INTEGER NOT NULL DEFAULT 0; -- 1 cordoned, 2 drained
ALTER TABLE nodes ADD COLUMN aside_reason TEXT NOT NULL DEFAULT '';
ALTER TABLE nodes ADD COLUMN aside_by TEXT NOT NULL DEFAULT '';
ALTER TABLE nodes ADD COLUMN aside_us INTEGER NOT NULL DEFAULT 0;
ALTER TABLE nodes ADD COLUMN aside_empty INTEGER NOT NULL DEFAULT 0; -- it was said that nothing runs there
-- Nodes (JSON) that the next start must not be on; the job whose file this one was made from, 0 for none.
ALTER TABLE jobs ADD COLUMN avoid TEXT NOT NULL DEFAULT '[]';
ALTER TABLE jobs ADD COLUMN rerun_of INTEGER NOT NULL DEFAULT 0;

-- In this file, and not beside the metrics, so that a decision and what it changed are stored in one transaction. A
-- change of a job's state is a row of job_events, which stays as long as the job; here is only its place in the order
-- of all. Bounded by number and age.
CREATE TABLE decisions (
  number INTEGER PRIMARY KEY, -- never used twice
  time_us INTEGER NOT NULL,
  job INTEGER NOT NULL,       -- 0 for none
  job_event INTEGER NOT NULL, -- its number in job_events, from where the rest comes; 0 for none
  node TEXT NOT NULL,         -- empty for none
  reason INTEGER NOT NULL,
  text TEXT NOT NULL,
  actor TEXT NOT NULL
);
CREATE INDEX decisions_by_node ON decisions (node, number) WHERE node <> '';
CREATE INDEX placements_by_node ON placements (node, job, generation);
