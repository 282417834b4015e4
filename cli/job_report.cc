#include "cli/job_report.h"

#include <fcntl.h>

#include "common/clock.h"

namespace imgd::cli {
namespace {

constexpr auto kBetweenReports = std::chrono::seconds(1);

}  // namespace

JobReport::JobReport(const Environment& env) {
  const std::string folder = env("IMGD_RUN_DIR");
  const std::string rank = env("LOCAL_RANK");
  if (folder.empty() || rank.empty()) return;
  const std::string path = folder + "/events." + rank;
  fd_ = UniqueFd(::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
}

void JobReport::Progress(const v1::DatasetProgress& progress) {
  if (!IsOn()) return;
  const auto now = std::chrono::steady_clock::now();
  const std::string doing = progress.part() + " " + progress.doing();
  if (doing == doing_ && now < due_ && progress.done() < progress.total()) return;
  doing_ = doing;
  due_ = now + kBetweenReports;
  v1::TrainerEvent event;
  *event.mutable_dataset_progress() = progress;
  Write(std::move(event));
}

void JobReport::Facts(const v1::DatasetFacts& facts) {
  if (!IsOn()) return;
  v1::TrainerEvent event;
  *event.mutable_dataset_facts() = facts;
  Write(std::move(event));
}

void JobReport::Write(v1::TrainerEvent event) {
  event.set_sequence(++sequence_);
  event.set_time_us(SystemClock().Wall().micros);
  const std::string body = event.SerializeAsString();
  std::string frame;
  for (size_t i = 0; i < 4; ++i) frame.push_back(static_cast<char>((body.size() >> (8 * i)) & 0xff));
  if (!WriteAll(fd_.get(), frame + body, "events")) fd_.reset();  // half a frame has none behind it
}

}  // namespace imgd::cli
