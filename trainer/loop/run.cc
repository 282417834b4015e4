#include "trainer/loop/run.h"

#include "trainer/torch.h"
//
#include "trainer/loop/session.h"
#include "trainer/loop/train_loop.h"

namespace imgd::trainer {
namespace {

/// The exception's words without LibTorch's C++ stack.
std::string WordsOf(const std::exception& e) {
  const auto* error = dynamic_cast<const c10::Error*>(&e);
  return error != nullptr ? error->what_without_backtrace() : e.what();
}

tl::unexpected<Error> FromException(const Environment& env, const std::exception& e) {
  if (dynamic_cast<const c10::OutOfMemoryError*>(&e) != nullptr) {
    return Fail(ErrorCode::kResourceExhausted,
                "rank {}: out of GPU memory; a smaller train.global_batch or more ranks "
                "help ({})",
                env.rank, WordsOf(e));
  }
  if (dynamic_cast<const CollectiveError*>(&e) != nullptr)
    return Fail(ErrorCode::kUnavailable, "{}", e.what());
  if (IsCollectiveFailure(e))
    return Fail(ErrorCode::kUnavailable, "rank {}: a collective broke: {}", env.rank, WordsOf(e));
  return Fail(ErrorCode::kInternal, "rank {}: {}", env.rank, WordsOf(e));
}

}  // namespace

Result<RunEnd> RunTraining(const JobSpec& spec, const Environment& env, report::Reporter& reporter,
                           Commands& commands) {
  // Never taken down: the process ends now, and the destructor of a process group would wait for ranks that
  // are gone.
  Session& session = *std::make_unique<Session>(Session{spec, env, reporter, commands}).release();
  try {
    IMGD_TRY(SetUp(session));
    return TrainLoop(session).Run();
  } catch (const std::exception& e) {
    return FromException(env, e);
  }
}

}  // namespace imgd::trainer
