#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "common/error.h"

namespace imgd::data {

/// A file that says which samples each rank had in each step: a line "STEP RANK SAMPLE SAMPLE ..." for each
/// step of a rank. Ranks of one node may write to the same file: each line is one write at its end.
class SampleTrace {
 public:
  /// Lines are added to what is there. Errors: those of the file system.
  static Result<SampleTrace> Open(const std::string& path);
  SampleTrace(SampleTrace&& other) noexcept;
  SampleTrace& operator=(SampleTrace&&) = delete;
  ~SampleTrace();

  Status Write(uint64_t step, int rank, std::span<const uint32_t> samples);

 private:
  SampleTrace(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}

  std::string path_;
  int fd_;
};

/// The samples of each step of a trace's text, rank after rank. Errors: kDataLoss with the line.
Result<std::map<uint64_t, std::vector<uint32_t>>> StepsOfTrace(const std::string& text);

}  // namespace imgd::data
