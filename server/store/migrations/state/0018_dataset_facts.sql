-- What is known of data sets from those who see their files: how far the conversion is that makes one
-- (imgd.v1.DatasetProgress, empty where none runs), and when one was last described and verified, with what was found
-- (imgd.v1.DatasetContents and DatasetVerification; a row once either is known).

ALTER TABLE datasets ADD COLUMN progress BLOB NOT NULL DEFAULT x'';
ALTER TABLE datasets ADD COLUMN described_us INTEGER NOT NULL DEFAULT 0;
ALTER TABLE datasets ADD COLUMN verified_us INTEGER NOT NULL DEFAULT 0;
ALTER TABLE datasets ADD COLUMN broken INTEGER NOT NULL DEFAULT 0;

CREATE TABLE dataset_facts (
  name TEXT PRIMARY KEY,
  contents BLOB NOT NULL DEFAULT x'',
  verification BLOB NOT NULL DEFAULT x''
);
