#include "trainer/loop/lineage_of.h"

#include <torch/version.h>

#include "common/commit.h"
#include "common/sha256.h"
#include "common/version.h"
#include "trainer/data/shard_list.h"
#include "trainer/data/shard_set.h"

namespace imgd::trainer {
namespace {

/// A look at a file may be a call of a file server.
constexpr size_t kMostSizes = 1000;

Lineage::Data DataOf(const std::string& where, const data::Dataset& set) {
  return {.where = data::Shown(where),
          .images = set.size(),
          .classes = set.classes().size(),
          .checksum = DataChecksum(set)};
}

void ReplaceAll(std::string& text, const std::string& from, const std::string& to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
}

}  // namespace

std::string DataChecksum(const data::Dataset& set) {
  Sha256 hash;
  for (size_t i = 0; i < set.size(); ++i) hash.Update(fmt::format("{}\n{}\n", set.name(i), set.label(i)));
  const size_t stride = (set.size() + kMostSizes - 1) / kMostSizes;
  for (size_t i = 0; i < set.size(); i += stride) {
    // What can't be read is what the run passes over too.
    hash.Update(fmt::format("{}\n", set.FileBytes(i).value_or(0)));
  }
  if (const auto* shards = dynamic_cast<const data::ShardSet*>(&set)) {
    for (const auto& checksum : shards->checksums()) hash.Update(checksum + "\n");
  }
  return "sha256:" + hash.Finish();
}

std::string PublicText(const JobSpec& spec) {
  std::string text = spec.text;
  const auto hide = [&text](const std::string& where) {
    if (const auto shown = data::Shown(where); shown != where) ReplaceAll(text, where, shown);
  };
  hide(spec.data.train);
  hide(spec.data.val);
  for (const auto& phase : spec.phases) hide(phase.train);
  return text;
}

Lineage LineageOf(const Session& session) {
  const auto& spec = session.spec;
  Lineage out{.job_id = session.env.job_id,
              .job = spec.name,
              .generation = session.env.generation,
              .world_size = session.env.world_size,
              .model = spec.model.name,
              .classes = session.train->classes().size(),
              .deep_stem = spec.model.deep_stem,
              .average_shortcut = spec.model.average_shortcut,
              .blurpool = spec.model.blurpool,
              .normalisation = spec.data.normalisation,
              .train = DataOf(spec.data.train, *session.train)};
  if (session.val) out.val = DataOf(spec.data.val, *session.val);
  out.version = kVersion;
  out.commit = Commit();
  out.torch = TORCH_VERSION;
  out.settings = JobDigest(spec);
  out.resumed_from = session.resumed_from;
  out.configuration = PublicText(spec);
  return out;
}

}  // namespace imgd::trainer
