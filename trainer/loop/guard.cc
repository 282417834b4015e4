#include "trainer/loop/guard.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "trainer/loop/saving.h"

namespace imgd::trainer {
namespace {

constexpr double kShareOfALook = 0.1;

constexpr std::string_view kAdvice =
    "a lower optimizer.lr, a longer schedule.warmup_epochs or optimizer.clip_norm may help";

}  // namespace

bool HasDiverged(double loss, double factor, GuardState& state) {
  if (!std::isfinite(loss)) return true;
  if (factor > 0 && state.mean_loss > 0 && loss > factor * state.mean_loss) return true;
  state.mean_loss = state.mean_loss > 0 ? (1 - kShareOfALook) * state.mean_loss + kShareOfALook * loss : loss;
  return false;
}

Guard::Guard(Session& session, Learner& learner) : session_(session), learner_(learner) {
  if (session.is_rank0()) learner.SetGuardSums(session.state.guard.sums);
}

bool Guard::Due() const {
  const auto& settings = session_.spec.guard;
  const uint64_t step = session_.state.step;
  return settings.on() &&
         (step % static_cast<uint64_t>(settings.every_steps) == 0 || CheckpointDue(session_, step));
}

void Guard::Keep() {
  if (!session_.spec.guard.on()) return;
  session_.gang->SetPosition(session_.state.step, "all-reduce of the sums for the guard");
  auto sums = learner_.GuardSums();
  session_.gang->AllReduceSum(sums);
  std::copy_n(sums.const_data_ptr<double>(), sums.numel(), session_.state.guard.sums.begin());
}

Status Guard::Look() {
  Keep();
  learner_.SetGuardSums({});
  GuardState& guard = session_.state.guard;
  const auto [loss_sum, correct, images, skipped] = std::exchange(guard.sums, {});
  const auto& settings = session_.spec.guard;
  if (settings.action == "skip") return LookAtSkipped(std::llround(skipped));
  if (images == 0) return {};
  const double loss = loss_sum / images;
  // In fp16 a single loss that is no finite number is what the loss scale is for.
  if (session_.loss_scale.on() && !std::isfinite(loss) && !session_.loss_scale.lost()) return {};
  if (!HasDiverged(loss, settings.loss_factor, guard)) {
    guard.good_step = session_.state.step;
    return {};
  }
  if (settings.action == "rollback") {
    return GoBack(fmt::format("the loss is {:.4g} at step {}, its running mean was {:.4g}", loss,
                              session_.state.step, guard.mean_loss));
  }
  return Fail(ErrorCode::kInvalidArgument,
              "training diverged: the loss is {:.4g} at step {}, its running mean was {:.4g}; {}", loss,
              session_.state.step, guard.mean_loss, kAdvice);
}

Status Guard::LookAtSkipped(int64_t skipped) {
  if (skipped == 0) return {};
  auto& times = session_.state.guard.times_used;
  times += skipped;
  if (session_.is_rank0()) {
    session_.reporter.Note(
        fmt::format("guard: {} step{} up to step {} left out, as the gradients were no finite numbers; {} so "
                    "far",
                    skipped, skipped == 1 ? "" : "s", session_.state.step, times));
  }
  if (times <= session_.spec.guard.max_times) return {};
  return Fail(ErrorCode::kInvalidArgument,
              "training diverged: {} steps had gradients that are no finite numbers, more than "
              "guard.max_times, {}; {}",
              times, session_.spec.guard.max_times, kAdvice);
}

Status Guard::GoBack(const std::string& wrong) {
  RunState& state = session_.state;
  if (++state.guard.times_used > session_.spec.guard.max_times) {
    return Fail(ErrorCode::kInvalidArgument,
                "training diverged: {}, and it went back {} times (guard.max_times) before; {}", wrong,
                session_.spec.guard.max_times, kAdvice);
  }
  const Pulse::During reading(*session_.pulse, Activity::kCheckpoint);
  if (session_.saver) IMGD_TRY(session_.saver->Finish());
  IMGD_ASSIGN(const auto back, RollBack(session_));
  if (!back) {
    return Fail(ErrorCode::kInvalidArgument,
                "training diverged: {}, before there was a good checkpoint to go back to; {}", wrong,
                kAdvice);
  }
  state.guard.given_up.emplace_back(back->step, state.step);
  if (session_.is_rank0()) {
    session_.reporter.Note(fmt::format(
        "guard: {}; the weights are those of {} again, and training goes on "
        "with step {}, without the steps between; rollback {} of {}",
        wrong, back->path, state.step + 1, state.guard.times_used, session_.spec.guard.max_times));
  }
  return {};
}

bool EnoughIsEnough(const JobSpec::EarlyStop& settings, RunState& state) {
  const ValidationResult& now = state.validation;
  BestSoFar& best = state.best;
  if (settings.patience == 0) return false;
  if (now.step > best.last_step) {
    best.last_step = now.step;
    const bool loss = settings.metric == "loss";
    const double gain = loss ? best.value - now.loss : now.top1 - best.value;
    // A loss that is no number is never better.
    if ((best.step == 0 && std::isfinite(loss ? now.loss : now.top1)) || gain > settings.min_delta) {
      best.value = loss ? now.loss : now.top1;
      best.step = now.step;
      best.passes_since = 0;
    } else {
      ++best.passes_since;
    }
  }
  return best.passes_since >= settings.patience;
}

std::string WhyEnough(const JobSpec::EarlyStop& settings, const BestSoFar& best) {
  const bool one = best.passes_since == 1;
  if (best.step == 0) {
    return fmt::format("none of {} validation pass{} had a {} that is a finite number", best.passes_since,
                       one ? "" : "es", settings.metric);
  }
  return fmt::format("{} no better than that of step {}, whose {} was {:.4g}",
                     one ? std::string("the last validation pass was")
                         : fmt::format("the last {} validation passes were", best.passes_since),
                     best.step, settings.metric, best.value);
}

}  // namespace imgd::trainer
