#pragma once

#include <chrono>
#include <exception>
#include <memory>
#include <stdexcept>

#include "trainer/torch.h"
//
#include "common/error.h"
#include "trainer/environment.h"
#include "trainer/pulse.h"
#include "trainer/report/trial.h"

namespace c10d {
class ProcessGroup;
}

namespace imgd::trainer {

/// A collective broke or timed out: another rank is probably the cause. Its words say what this rank was
/// doing and, after a time-out, where the others are.
class CollectiveError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The exception's words, without LibTorch's C++ stack.
std::string WordsOf(const std::exception& e);

/// Whether an exception of LibTorch comes from a collective rather than from this rank's own computing.
bool IsCollectiveFailure(const std::exception& e);

/// This rank's place among the ranks of the run, and the collectives between them. With one rank there is no
/// process group and every collective returns at once. All collectives must be called by all ranks in the
/// same order, from one thread, and throw CollectiveError.
class Gang {
 public:
  /// Meets the other ranks at the rendezvous store, under the generation's prefix, and makes the process
  /// group: Gloo for tensors on the CPU, NCCL for those on a GPU. Errors: kDeadlineExceeded naming the ranks
  /// that did not come; kUnavailable when the store can't be reached. `pulse` must outlive it.
  static Result<std::unique_ptr<Gang>> Join(const Environment& env, const at::Device& device, Pulse& pulse);
  ~Gang();

  int rank() const { return rank_; }
  int world_size() const { return world_size_; }

  /// What this rank does from now on, for its own errors and for other ranks' ("step 12, gradient
  /// all-reduce"), and that it has come a bit further. `what` must be a literal.
  void SetPosition(uint64_t step, const char* what);

  /// A short all-reduce where gradients will go, timed, so that a link that is dead, slow or wrong is known
  /// before the training begins. Nothing with one rank. After `limit` it is a CollectiveError, as is a wrong
  /// sum. `nodes`: that the ranks are on, to be told.
  std::optional<report::Trial> TryAllReduce(const at::Device& device, int nodes,
                                            std::chrono::milliseconds limit);

  /// Sums a CPU or GPU tensor over all ranks, in place.
  void AllReduceSum(at::Tensor& tensor);

  /// Copies rank 0's tensors to all.
  void BroadcastFromRank0(const std::vector<at::Tensor>& tensors);

  /// The ranks that are furthest behind, with their hosts and what they do, in words; empty where nothing is
  /// known. Any thread; takes up to five seconds.
  std::string LateRanks() const;

  /// Copies rank 0's bytes to all.
  std::string BroadcastFromRank0(const std::string& bytes);

  /// A sum that is on its way.
  class PendingSum {
   public:
    /// The sums, once all ranks have given theirs.
    std::vector<int64_t> Wait();

   private:
    friend class Gang;
    class Impl;
    std::shared_ptr<Impl> impl_;
  };

  /// Starts to sum a few numbers over all ranks while this rank goes on.
  PendingSum StartSum(const std::vector<int64_t>& values);

  /// Returns once all ranks have come here; does not mind if one is gone already.
  void FinalBarrier() noexcept;

  /// Null with one rank.
  c10::intrusive_ptr<c10d::ProcessGroup> group() const;

  /// Runs `f` and turns what it throws from a collective into CollectiveError with words.
  template <typename F>
  auto Guard(F&& f) -> decltype(f()) {
    try {
      return f();
    } catch (const CollectiveError&) {
      throw;
    } catch (const std::exception& e) {
      if (!IsCollectiveFailure(e)) throw;
      ThrowBroken(e);
    }
  }

 private:
  class Board;
  struct Parts;
  Gang(int rank, int world_size, Pulse& pulse);
  [[noreturn]] void ThrowBroken(const std::exception& e);

  const int rank_;
  const int world_size_;
  Pulse& pulse_;
  std::unique_ptr<Parts> parts_;  ///< null with one rank
};

}  // namespace imgd::trainer
