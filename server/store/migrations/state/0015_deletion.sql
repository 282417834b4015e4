-- What was decided of a job goes with it when it is deleted.
CREATE INDEX decisions_by_job ON decisions (job, number) WHERE job <> 0;
