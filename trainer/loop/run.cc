#include "trainer/loop/run.h"

#include "trainer/torch.h"
//
#include "trainer/loop/session.h"
#include "trainer/loop/train_loop.h"
#include "trainer/loop/validation.h"

namespace imgd::trainer {

Error ErrorOf(const Environment& env, const std::exception& e) {
  const auto error = [&](ErrorCode code, std::string_view what) {
    return Error{.code = code, .message = fmt::format("rank {}: {}{}", env.rank, what, WordsOf(e))};
  };
  if (dynamic_cast<const c10::OutOfMemoryError*>(&e) != nullptr) {
    return error(ErrorCode::kResourceExhausted,
                 "out of GPU memory; a smaller train.global_batch or more ranks help: ");
  }
  // It names the rank itself.
  if (dynamic_cast<const CollectiveError*>(&e) != nullptr)
    return {.code = ErrorCode::kUnavailable, .message = e.what()};
  if (IsCollectiveFailure(e)) return error(ErrorCode::kUnavailable, "a collective broke: ");
  return error(ErrorCode::kInternal, "");
}

namespace {

Result<RunEnd> TrainGuarded(Session& session) {
  try {
    IMGD_TRY(SetUp(session));
    return TrainLoop(session).Run();
  } catch (const std::exception& e) {
    return tl::unexpected(ErrorOf(session.env, e));
  }
}

}  // namespace

Result<RunEnd> RunTraining(const JobSpec& spec, const Environment& env, report::Reporter& reporter,
                           Commands& commands, Whereabouts& whereabouts) {
  // Never taken down: the process ends now, and the destructor of a process group would wait for ranks that
  // are gone.
  Session& session =
      *std::make_unique<Session>(Session{spec, env, reporter, commands, whereabouts}).release();
  auto end = TrainGuarded(session);
  // What ended the run is no reason to lose the checkpoint that was being written.
  if (!end && session.saver) {
    const Pulse::During saving(*session.pulse, Activity::kCheckpoint);
    if (const auto saved = session.saver->Finish(); !saved) reporter.Note(saved.error().ToString());
  }
  return end;
}

Result<Evaluation> RunEvaluation(const JobSpec& spec, const Environment& env, report::Reporter& reporter) {
  static Commands none;
  static Whereabouts nowhere;
  Session& session = *std::make_unique<Session>(Session{spec, env, reporter, none, nowhere}).release();
  try {
    IMGD_TRY(SetUpEvaluation(session));
    IMGD_ASSIGN(ValidationEnd end, Measure(session));
    session.gang->FinalBarrier();
    return Evaluation{end.result, std::move(end.classes)};
  } catch (const std::exception& e) {
    return tl::unexpected(ErrorOf(env, e));
  }
}

}  // namespace imgd::trainer
