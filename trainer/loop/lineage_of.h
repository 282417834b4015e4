#pragma once

#include <string>

#include "common/checkpoint/lineage.h"
#include "trainer/data/dataset.h"
#include "trainer/loop/session.h"

namespace imgd::trainer {

/// What a checkpoint of this run says of where it comes from, but for the step, which differs.
Lineage LineageOf(const Session& session);

/// A digest of which images a set has (docs/formats.md): of all names and labels, of the sizes of a thousand
/// files, evenly spread, and of the shards' checksums where shards.json has them.
std::string DataChecksum(const data::Dataset& set);

/// The job's text without the passwords and signatures of URLs in it.
std::string PublicText(const JobSpec& spec);

}  // namespace imgd::trainer
