#include "trainer/data/trace.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <iterator>
#include <sstream>
#include <utility>

namespace imgd::data {

Result<SampleTrace> SampleTrace::Open(const std::string& path) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd < 0) return Fail(ErrorCode::kInvalidArgument, "cannot write {}: {}", path, std::strerror(errno));
  return SampleTrace(path, fd);
}

SampleTrace::SampleTrace(SampleTrace&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)) {}

SampleTrace::~SampleTrace() {
  if (fd_ >= 0) ::close(fd_);
}

Status SampleTrace::Write(uint64_t step, int rank, std::span<const uint32_t> samples) {
  std::string line = fmt::format("{} {}", step, rank);
  for (const uint32_t sample : samples) fmt::format_to(std::back_inserter(line), " {}", sample);
  line += '\n';
  ssize_t written = 0;
  do {
    written = ::write(fd_, line.data(), line.size());
  } while (written < 0 && errno == EINTR);
  if (written == static_cast<ssize_t>(line.size())) return {};
  return Fail(ErrorCode::kInternal, "cannot write {}: {}", path_,
              written < 0 ? std::strerror(errno) : "the disk is full");
}

Result<std::map<uint64_t, std::vector<uint32_t>>> StepsOfTrace(const std::string& text) {
  std::map<std::pair<uint64_t, int>, std::vector<uint32_t>> ranks;
  std::istringstream lines(text);
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    std::istringstream words(line);
    uint64_t step = 0;
    int rank = 0;
    words >> step >> rank;
    if (!words) return Fail(ErrorCode::kDataLoss, "line {} has no step and rank", number);
    auto [entry, fresh] = ranks.try_emplace({step, rank});
    if (!fresh) {
      return Fail(ErrorCode::kDataLoss, "line {} has step {} of rank {} once more", number, step, rank);
    }
    for (uint32_t sample = 0; words >> sample;) entry->second.push_back(sample);
    if (!words.eof()) return Fail(ErrorCode::kDataLoss, "line {} has a word that is no number", number);
  }
  std::map<uint64_t, std::vector<uint32_t>> steps;
  for (const auto& [key, samples] : ranks) {
    auto& step = steps[key.first];
    step.insert(step.end(), samples.begin(), samples.end());
  }
  return steps;
}

}  // namespace imgd::data
