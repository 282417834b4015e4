-- What a gang asks of its nodes and devices, and what agents say about their nodes (JSON, {} for nothing).
ALTER TABLE jobs ADD COLUMN needs TEXT NOT NULL DEFAULT '{}';
-- What users have had of the devices, which counts for less as time goes by, and what jobs count for.
CREATE TABLE usage (
  owner TEXT PRIMARY KEY,
  device_seconds REAL NOT NULL,
  at_us INTEGER NOT NULL
) WITHOUT ROWID;
ALTER TABLE jobs ADD COLUMN project TEXT NOT NULL DEFAULT '';
-- Jobs of a higher priority may have its devices.
ALTER TABLE jobs ADD COLUMN preemptible INTEGER NOT NULL DEFAULT 1;
ALTER TABLE nodes ADD COLUMN labels TEXT NOT NULL DEFAULT '{}';
