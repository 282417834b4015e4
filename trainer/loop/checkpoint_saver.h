#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "trainer/torch.h"
//
#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/lineage.h"
#include "common/checkpoint/retention.h"
#include "common/checkpoint/store.h"
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
  std::shared_ptr<CheckpointStore> store;
  uint64_t generation = 0;
  std::function<KeepRule()> keep;  ///< asked for by the saver's user's thread; the rule is for any
};

/// Writes checkpoints and removes old ones while training goes on, one after the other, in a thread of its
/// own that gives way to others. Used by one thread.
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

  /// Reports the one that is being written, if it is done, and begins to remove old ones. Errors: those of
  /// CheckpointStore.
  Status Poll();

  /// The same, after waiting for all of it.
  Status Finish();

  /// Begins to remove what is not to be kept, `newest` being the last one that was written. Nothing may be
  /// under way.
  void Prune(const CheckpointRef& newest);

 private:
  using Written = Result<CommittedCheckpoint>;
  using Removed = Status;

  Written Write(const Snapshot& snapshot) const;
  void Run(std::function<void()> work);
  Status TakeOutcome();

  CheckpointPlace place_;
  Lineage lineage_;  ///< not touched while one is being written
  report::Reporter& reporter_;
  std::thread thread_;
  std::atomic<bool> done_ = false;  ///< the thread has set one of these
  std::optional<Written> written_;  ///< of the thread, once done_
  std::optional<Removed> removed_;  ///< likewise
  double write_seconds_ = 0;        ///< of written_
};

}  // namespace imgd::trainer
