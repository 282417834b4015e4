-- Names for data sets; jobs hold the address itself.
CREATE TABLE datasets (
  name TEXT PRIMARY KEY,
  address TEXT NOT NULL,
  images INTEGER NOT NULL,
  classes INTEGER NOT NULL,
  owner TEXT NOT NULL,
  registered_us INTEGER NOT NULL
) WITHOUT ROWID;
