-- Jobs that do not train (the numbers are those of JobKind in proto/imgd/v1/common.proto; 1: training), and whether such a
-- one has one process on each node. The conversion that is still to make a data set that has a name already; 0: it is there.

ALTER TABLE jobs ADD COLUMN kind INTEGER NOT NULL DEFAULT 1;
ALTER TABLE jobs ADD COLUMN per_node INTEGER NOT NULL DEFAULT 0;
ALTER TABLE datasets ADD COLUMN made_by INTEGER NOT NULL DEFAULT 0;
