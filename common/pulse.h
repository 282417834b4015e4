#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "common/error.h"

namespace imgd {

/// Where a rank is: what it writes down in its run's folder for its agent to read.
struct PulseState {
  uint64_t beats = 0;             ///< grows while the process runs, about twice a second
  uint64_t moves = 0;             ///< grows whenever the training thread comes a bit further
  uint64_t step = 0;              ///< optimiser steps done since the run's start, over all generations
  uint64_t collectives = 0;       ///< collectives that the rank has begun
  uint64_t limit_ms = 0;          ///< how long `moves` may stand still at what it does now; 0: for ever
  uint64_t silence_limit_ms = 0;  ///< how long `beats` may; 0: for ever
  std::string what;               ///< what it does: "forward pass"; kept up to kMaxPulseText bytes
  std::string unanswered;  ///< address of a peer that takes nothing any more; empty where there is none
  bool operator==(const PulseState&) const = default;
};
constexpr size_t kMaxPulseText = 63;

/// "pulse.0": the file's name in the run's folder.
std::string PulseFileName(uint32_t local_rank);

/// Where pulses are kept: a file system in memory. In one on a disk, a store to a page that is just being
/// written back waits for the disk, and a slow one would make a healthy rank look stopped.
inline constexpr const char* kPulseFolder = "/dev/shm";

/// The writing end: memory that is shared with a file, so that the last word stands there however the
/// process ends, and that writing never waits for a disk. Not thread-safe.
class PulseFile {
 public:
  /// Makes the file anew: in `folder`, with `path` as a link to it; in `path` itself where `folder` is not in
  /// memory, or has no room. Whoever removes the run's folder calls RemovePulse() before.
  /// Errors: as the system calls, naming the path; a full disk is found here.
  static Result<PulseFile> Create(const std::filesystem::path& path,
                                  const std::filesystem::path& folder = kPulseFolder);
  void Write(const PulseState& state);

 private:
  struct Unmap {
    void operator()(void* memory) const;
  };
  explicit PulseFile(void* memory) : memory_(memory) {}
  std::unique_ptr<void, Unmap> memory_;
};

/// Removes `path`, and what PulseFile::Create() made it a link to; nothing else that a link may lead to.
void RemovePulse(const std::filesystem::path& path, const std::filesystem::path& folder = kPulseFolder);

/// Reads what was last written as a whole. Errors: kNotFound; kUnavailable where the writer was stopped or is
/// in the middle of writing; kDataLoss where the file is none of ours.
Result<PulseState> ReadPulse(const std::filesystem::path& path);

}  // namespace imgd
