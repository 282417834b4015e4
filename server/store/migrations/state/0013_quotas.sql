-- What users and projects ("user ada", "project vision") have used of the devices, by period: 1 day, 2 week, 3 month, 4 in all.
CREATE TABLE accounts (
  name TEXT NOT NULL,
  period INTEGER NOT NULL,
  since_us INTEGER NOT NULL,
  device_seconds REAL NOT NULL,
  cost REAL NOT NULL,
  last_us INTEGER NOT NULL,
  PRIMARY KEY (name, period)
) WITHOUT ROWID;
-- The same of each job, over all its starts, and what each node costs an hour.
ALTER TABLE jobs ADD COLUMN device_seconds REAL NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN cost REAL NOT NULL DEFAULT 0;
ALTER TABLE nodes ADD COLUMN price_per_hour REAL NOT NULL DEFAULT 0;
