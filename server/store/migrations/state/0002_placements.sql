-- Where the ranks of each start are or were, so that what a node reports of a run can be checked also when the job
-- has been started again since.
CREATE TABLE placements (
  job INTEGER NOT NULL,
  generation INTEGER NOT NULL,
  first_rank INTEGER NOT NULL,
  ranks INTEGER NOT NULL,
  node TEXT NOT NULL,
  PRIMARY KEY (job, generation, first_rank)
) WITHOUT ROWID;

-- The latest starts of jobs from before this table.
INSERT INTO placements
SELECT jobs.id, jobs.generation, part.value ->> 'first_rank', json_array_length(part.value, '$.devices'),
       part.value ->> 'node'
FROM jobs, json_each(jobs.run, '$.parts') AS part;
