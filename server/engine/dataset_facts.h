#pragma once

#include "imgd/v1/dataset_facts.pb.h"
#include "server/store/state_store.h"

namespace imgd {

/// How far its conversion is; empty where none runs.
v1::DatasetProgress ProgressOf(const DatasetRecord& set);

/// Leaves out what is beyond common/dataset_limits.h, shortens texts that are too long, and drops pictures
/// that are too large.
void Bound(v1::DatasetFacts& facts);
void Bound(v1::DatasetProgress& progress);

}  // namespace imgd
