-- How nodes join by TLS. The join tokens themselves are nowhere, only their SHA-256 in lower-case hexadecimal.
CREATE TABLE join_tokens (
  id TEXT PRIMARY KEY,
  hash TEXT NOT NULL UNIQUE,
  owner TEXT NOT NULL,
  uses INTEGER NOT NULL,
  uses_left INTEGER NOT NULL,
  created_us INTEGER NOT NULL,
  expires_us INTEGER NOT NULL
) WITHOUT ROWID;
-- Who joined by them.
CREATE TABLE join_uses (
  token TEXT NOT NULL,
  node TEXT NOT NULL,
  address TEXT NOT NULL,
  time_us INTEGER NOT NULL
);
CREATE INDEX join_uses_token ON join_uses (token);
-- The key that each node joined with (SHA-256 of its public half), and until when its last certificate is good.
CREATE TABLE node_keys (
  node TEXT PRIMARY KEY,
  agent_id TEXT NOT NULL,
  key_hash TEXT NOT NULL,
  token TEXT NOT NULL,
  joined_us INTEGER NOT NULL,
  expires_us INTEGER NOT NULL,
  revoked INTEGER NOT NULL
) WITHOUT ROWID;
