-- What tells a job's fault from a node's (server/core/crash.h): the job's crashes since its last progress, as JSON, and
-- the different jobs that failed on a node in a row. nodes.aside: 3, 4 where imgd itself keeps new runs off a node, for
-- such jobs or for a line of a log.
ALTER TABLE jobs ADD COLUMN crashes TEXT NOT NULL DEFAULT '{}';
ALTER TABLE nodes ADD COLUMN strikes TEXT NOT NULL DEFAULT '[]';
