#pragma once

#include <atomic>
#include <filesystem>
#include <optional>
#include <thread>
#include <vector>

#include "trainer/torch.h"
//
#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/lineage.h"
#include "common/checkpoint/retention.h"
#include "common/error.h"
#include "trainer/loop/run_state.h"
#include "trainer/report/reporter.h"

namespace imgd::trainer {

/// What safetensors call a type: "F32", "I64"; models have no others.
const char* DtypeName(at::ScalarType type);

/// Copies of tensors on the CPU, and views of them as a checkpoint's file has them.
struct HostTensors {
  std::vector<at::Tensor> copies;
  std::vector<TensorView> views;
};

/// Copies; the originals may change afterwards.
HostTensors CopyToHost(const NamedTensors& named);

/// All that a checkpoint holds, as it was at one step.
struct Snapshot {
  RunState state;
  HostTensors model;
  HostTensors optimizer;
  std::optional<HostTensors> average;
};

/// Where checkpoints go, and which stay.
struct CheckpointPlace {
  std::filesystem::path root;
  uint64_t generation = 0;
  KeepRule keep;
};

/// Writes checkpoints while training goes on, one after the other, in a thread of its own that gives way to
/// others. Used by one thread.
class CheckpointSaver {
 public:
  /// `reporter` must outlive it.
  CheckpointSaver(CheckpointPlace place, report::Reporter& reporter)
      : place_(std::move(place)), reporter_(reporter) {}
  /// Waits for the one that is being written.
  ~CheckpointSaver();
  CheckpointSaver(const CheckpointSaver&) = delete;
  CheckpointSaver& operator=(const CheckpointSaver&) = delete;

  /// What the ones to come say of where they are from.
  void SetLineage(Lineage lineage) { lineage_ = std::move(lineage); }

  /// Begins to write, once the last one is done. Errors: the last one's.
  Status Start(Snapshot snapshot);

  /// Reports the one that is being written, and removes old ones, if it is done. Errors: as CheckpointWriter.
  Status Poll();

  /// The same, after waiting for it.
  Status Finish();

  /// Removes what is not to be kept, `newest` being the last one that was written. None may be under way.
  void Prune(const CheckpointRef& newest);

 private:
  Result<CommittedCheckpoint> Write(const Snapshot& snapshot) const;

  CheckpointPlace place_;
  Lineage lineage_;  ///< not touched while one is being written
  report::Reporter& reporter_;
  std::thread thread_;
  std::atomic<bool> done_ = false;                      ///< the thread has set outcome_
  std::optional<Result<CommittedCheckpoint>> outcome_;  ///< of the thread, once done_
};

}  // namespace imgd::trainer
