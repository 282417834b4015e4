-- Who may ask what by HTTP. The tokens themselves are nowhere, only their SHA-256 in lower-case hexadecimal.
CREATE TABLE tokens (
  name TEXT PRIMARY KEY,
  hash TEXT NOT NULL UNIQUE,
  owner TEXT NOT NULL,
  created_us INTEGER NOT NULL,
  expires_us INTEGER NOT NULL -- 0 for never
) WITHOUT ROWID;
-- What a token is good for; a later imgd may know more words.
CREATE TABLE token_scopes (
  token TEXT NOT NULL REFERENCES tokens (name) ON DELETE CASCADE,
  scope TEXT NOT NULL,
  PRIMARY KEY (token, scope)
) WITHOUT ROWID;
