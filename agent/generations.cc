#include "agent/generations.h"

#include <nlohmann/json.hpp>

#include "common/files.h"

namespace imgd {
namespace {
/// Jobs that are remembered. A command for a job that so many younger ones have come after is not on its way
/// any more.
constexpr size_t kMaxJobs = 10'000;
}  // namespace

Result<Generations> Generations::Load(std::filesystem::path file) {
  Generations generations(std::move(file));
  const auto text = ReadFile(generations.file_);
  if (!text && text.error().code == ErrorCode::kNotFound) return generations;
  if (!text) return tl::unexpected(text.error());
  try {
    const auto pairs = nlohmann::json::parse(*text).get<std::vector<std::pair<uint64_t, uint64_t>>>();
    for (const auto& [job, generation] : pairs) generations.oldest_[JobId(job)] = Generation(generation);
  } catch (const nlohmann::json::exception& e) {
    auto failed = Fail(ErrorCode::kDataLoss, "the record of generations is damaged: {}", e.what());
    failed.value().file = generations.file_;
    return failed;
  }
  return generations;
}

bool Generations::MayStart(JobId job, Generation generation) const { return generation >= Oldest(job); }

Generation Generations::Oldest(JobId job) const {
  const auto it = oldest_.find(job);
  return it == oldest_.end() ? Generation(0) : it->second;
}

Status Generations::AllowFrom(JobId job, Generation generation) {
  if (oldest_.contains(job) && oldest_[job] >= generation) return {};
  oldest_[job] = generation;
  while (oldest_.size() > kMaxJobs) oldest_.erase(oldest_.begin());
  nlohmann::json pairs = nlohmann::json::array();
  for (const auto& [id, oldest] : oldest_) pairs.push_back({id.value(), oldest.value()});
  return WriteFileAtomically(file_, pairs.dump() + "\n");
}

}  // namespace imgd
