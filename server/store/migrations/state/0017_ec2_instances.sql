-- EC2 instances that joined by their identity document, each once. What became of that (leave): 0 it holds, 1 somebody
-- revoked the node, 2 the instance may join once more. When it was started: EC2's pendingTime.
CREATE TABLE ec2_instances (
  id TEXT PRIMARY KEY,
  account TEXT NOT NULL,
  region TEXT NOT NULL,
  image TEXT NOT NULL,
  started_us INTEGER NOT NULL,
  node TEXT NOT NULL,
  key_hash TEXT NOT NULL,
  joined_us INTEGER NOT NULL,
  leave INTEGER NOT NULL
) WITHOUT ROWID;
