-- A job's key goes with it when it is deleted.
CREATE INDEX idempotency_keys_by_job ON idempotency_keys (job);
