#include "agent/generations.h"

#include <nlohmann/json.hpp>

#include "common/files.h"

namespace imgd {
namespace {
/// Jobs of a cluster that are remembered. A command for a job that so many younger ones have come after is
/// not on its way any more.
constexpr size_t kMaxJobs = 10'000;
}  // namespace

Result<Generations> Generations::Load(std::filesystem::path file) {
  Generations generations(std::move(file));
  const auto text = ReadFile(generations.file_);
  if (!text && text.error().code == ErrorCode::kNotFound) return generations;
  if (!text) return tl::unexpected(text.error());
  using Pairs = std::vector<std::pair<uint64_t, uint64_t>>;
  try {
    const auto clusters = nlohmann::json::parse(*text).get<std::map<std::string, Pairs>>();
    for (const auto& [cluster, pairs] : clusters) {
      Floors& floors = generations.clusters_[cluster];
      for (const auto& [job, generation] : pairs) floors[JobId(job)] = Generation(generation);
    }
  } catch (const nlohmann::json::exception& e) {
    auto failed = Fail(ErrorCode::kDataLoss, "the record of generations is damaged: {}", e.what());
    failed.value().file = generations.file_;
    return failed;
  }
  return generations;
}

bool Generations::MayStart(const std::string& cluster, JobId job, Generation generation) const {
  return generation >= Oldest(cluster, job);
}

Generation Generations::Oldest(const std::string& cluster, JobId job) const {
  const auto floors = clusters_.find(cluster);
  if (floors == clusters_.end()) return Generation(0);
  const auto floor = floors->second.find(job);
  return floor == floors->second.end() ? Generation(0) : floor->second;
}

Status Generations::AllowFrom(const std::string& cluster, JobId job, Generation generation) {
  Floors& floors = clusters_[cluster];
  if (floors.contains(job) && floors[job] >= generation) return {};
  floors[job] = generation;
  while (floors.size() > kMaxJobs) floors.erase(floors.begin());
  auto out = nlohmann::json::object();
  for (const auto& [id, known] : clusters_) {
    auto& pairs = out[id] = nlohmann::json::array();
    for (const auto& [known_job, oldest] : known) pairs.push_back({known_job.value(), oldest.value()});
  }
  return WriteFileAtomically(file_, out.dump() + "\n");
}

}  // namespace imgd
