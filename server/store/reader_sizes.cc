#include "server/store/reader.h"
#include "server/store/sizes.h"
#include "server/store/sql.h"

/// What there is of what jobs leave.
namespace imgd {

Result<std::vector<JobEnd>> Reader::JobEnds() {
  return state_.Guard([&] {
    auto& query = state_.Prepare(
        "SELECT id, state IN (6, 7, 8) AS ended, ended_us, checkpoint_dir, by_hand_token <> '' FROM jobs "
        "ORDER "
        "BY ended DESC, ended_us, id");
    std::vector<JobEnd> out;
    while (query.executeStep()) {
      out.push_back({.id = JobId(Unsigned(query.getColumn(0))),
                     .ended = query.getColumn(1).getInt() != 0,
                     .at = {query.getColumn(2).getInt64()},
                     .checkpoint_dir = query.getColumn(3).getString(),
                     .by_hand = query.getColumn(4).getInt() != 0});
    }
    query.reset();
    return out;
  });
}

Result<bool> Reader::StandsInLiveFile(const std::string& text) {
  return state_.Guard([&] {
    auto& query = state_.Prepare(
        "SELECT EXISTS (SELECT 1 FROM jobs JOIN job_files ON job_files.job = jobs.id WHERE state NOT IN (6, "
        "7, 8) "
        "AND instr(yaml, ?) > 0)");
    query.bind(1, text);
    query.executeStep();
    const bool stands = query.getColumn(0).getInt() != 0;
    query.reset();
    return stands;
  });
}

Result<std::map<JobId, uint64_t>> Reader::LogSizes(uint64_t segment_bytes) {
  return metrics_.Guard([&] { return LogSizesOf(metrics_, segment_bytes); });
}

Result<uint64_t> Reader::UsedMetricsBytes() {
  return metrics_.Guard([&] { return UsedBytesOf(metrics_); });
}

Result<uint64_t> Reader::FigureBytes(JobId job) {
  return metrics_.Guard([&] { return FigureBytesOf(metrics_, job); });
}

}  // namespace imgd
