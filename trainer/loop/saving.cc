#include "trainer/loop/saving.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <tuple>
#include <unordered_map>

#include "trainer/loop/validation.h"

namespace imgd::trainer {
namespace {

/// Copies a file's tensors into those of the same names; all must be there, and no others.
Status CopyInto(const NamedTensors& named, const SafetensorsContent& content) {
  torch::NoGradGuard no_grad;
  if (content.tensors.size() != named.size()) {
    return Fail(ErrorCode::kDataLoss, "{} tensors where {} are expected", content.tensors.size(),
                named.size());
  }
  std::unordered_map<std::string, const TensorView*> by_name;
  for (const auto& view : content.tensors) by_name[view.name] = &view;
  for (const auto& [name, tensor] : named) {
    const auto found = by_name.find(name);
    if (found == by_name.end()) return Fail(ErrorCode::kDataLoss, "it has no tensor '{}'", name);
    const TensorView& view = *found->second;
    const auto type = tensor.scalar_type();
    if (view.shape != tensor.sizes().vec() || view.dtype != DtypeName(type)) {
      return Fail(ErrorCode::kDataLoss, "tensor '{}' has another shape or type", name);
    }
    auto copy = at::empty(view.shape, type);
    std::memcpy(copy.data_ptr(), view.bytes.data(), view.bytes.size());
    auto target = tensor;
    target.copy_(copy);
  }
  return {};
}

/// A checkpoint of a run that had none begins it anew, as a copy of the weights.
Status TakeUpAverage(Session& session, const CheckpointContent& files) {
  IMGD_ASSIGN(const auto average, ParseSafetensors(files.average.empty() ? files.model : files.average));
  return CopyInto(session.average->values(), average);
}

/// The files are those that were written: what does not fit comes from other settings.
Status TakeUpTensors(Session& session, const CheckpointRef& ref, const CheckpointContent& files) {
  const auto fit = [&ref](const char* settings, const Status& copied) -> Status {
    if (copied) return {};
    return Fail(
        ErrorCode::kInvalidArgument,
        "checkpoint {} was trained with other settings of {}: {}; take another name or checkpoint.dir",
        ref.path.native(), settings, copied.error().message);
  };
  IMGD_ASSIGN(const auto model, ParseSafetensors(files.model));
  IMGD_ASSIGN(const auto optimizer, ParseSafetensors(files.optimizer));
  IMGD_TRY(fit("model", CopyInto(StateDict(*session.model), model)));
  IMGD_TRY(fit("model.freeze or optimizer", CopyInto(session.optimizer->State(), optimizer)));
  if (session.average) IMGD_TRY(TakeUpAverage(session, files));
  return {};
}

Result<RunState> TakeUp(Session& session, const CheckpointRef& ref) {
  IMGD_ASSIGN(const auto files, ReadCheckpoint(*session.checkpoints, ref));
  IMGD_ASSIGN(RunState state, RunStateFromJson(files.state));
  // Through JSON and back, as the saved names went.
  IMGD_ASSIGN(const RunState ours, RunStateFromJson(ToJson(session.state)));
  if (state.model != ours.model || state.class_names != ours.class_names) {
    return Fail(
        ErrorCode::kInvalidArgument,
        "checkpoint {} is of {} with {} classes, but the job trains {} with {}{}; take another name or "
        "checkpoint.dir",
        ref.path.native(), state.model, state.class_names.size(), ours.model, ours.class_names.size(),
        state.class_names.size() == ours.class_names.size() ? " others" : "");
  }
  if (!state.optimizer.empty() && state.optimizer != ours.optimizer) {
    return Fail(ErrorCode::kInvalidArgument,
                "checkpoint {} was trained with optimizer.kind: {}, but the job has {}; take another name or "
                "checkpoint.dir, or begin with its weights by model.init_from",
                ref.path.native(), state.optimizer, ours.optimizer);
  }
  IMGD_TRY(TakeUpTensors(session, ref, files));
  if (const auto text = session.checkpoints->Read(ref, "validation.json")) {
    if (const auto validation = ValidationFromJson(*text)) state.validation = *validation;
  }
  return state;
}

/// Rank 0's part. Leaves the session alone where there is nothing to go on from.
Status TakeUpNewest(Session& session) {
  IMGD_ASSIGN(const auto candidates, ResumeCandidates(*session.checkpoints, session.env.resume_file));
  for (const auto& ref : candidates) {
    auto state = TakeUp(session, ref);
    if (state) {
      if (state->job_digest != session.state.job_digest) {
        session.reporter.Note(
            fmt::format("the job's settings are not those that checkpoint {} was trained with; going on with "
                        "the new ones",
                        ref.path.native()));
      }
      session.state = std::move(*state);
      session.resumed_from = ref.path;
      return {};
    }
    if (state.error().code == ErrorCode::kInvalidArgument) return tl::unexpected(state.error());
    session.reporter.Note(
        fmt::format("checkpoint {} is passed over: {}", ref.path.native(), state.error().ToString()));
  }
  if (candidates.empty()) return {};
  return Fail(ErrorCode::kInvalidArgument,
              "none of the {} checkpoints in {} can be read; move them away to start afresh",
              candidates.size(), session.checkpoints->root().native());
}

/// Whether a checkpoint, which the job file asked for, is known to be good. Others come from people, or from
/// the run's end, and would make a run that was cut go on otherwise than one that was not.
bool MayGoBackTo(const Session& session, const GuardState& guard, const CheckpointSummary& checkpoint) {
  const uint64_t step = checkpoint.ref.step;
  // Older ones don't say it; then the file is what it was, as far as anybody knows.
  return IsGood(guard, step) && (checkpoint.planned ? *checkpoint.planned : IsPlanned(session, step));
}

/// The checkpoints of this start and those that it could have gone on from, as far as they are good, newest
/// first.
Result<std::vector<CheckpointRef>> GoodCheckpoints(const Session& session) {
  IMGD_ASSIGN(auto all, ResumeCandidates(*session.checkpoints, session.env.resume_file));
  IMGD_ASSIGN(const auto listed, session.checkpoints->List());
  std::set<std::filesystem::path> known;
  for (const auto& ref : all) known.insert(ref.path);
  for (const auto& ref : listed.complete) {
    if (ref.generation == session.env.generation && !known.contains(ref.path)) all.push_back(ref);
  }
  std::erase_if(all, [&session](const CheckpointRef& ref) {
    return !MayGoBackTo(session, session.state.guard, SummarizeCheckpoint(*session.checkpoints, ref));
  });
  std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) {
    return std::tie(a.step, a.generation) > std::tie(b.step, b.generation);
  });
  return all;
}

/// Rank 0's part.
Result<RolledBack> TakeUpGood(Session& session) {
  IMGD_ASSIGN(const auto good, GoodCheckpoints(session));
  for (const auto& ref : good) {
    const auto then = TakeUp(session, ref);
    if (then) {
      session.state.loss_scale = then->loss_scale;
      session.state.loss_scale_streak = then->loss_scale_streak;
      return RolledBack{ref.path.native(), ref.step};
    }
    session.reporter.Note(
        fmt::format("checkpoint {} is passed over: {}", ref.path.native(), then.error().ToString()));
  }
  return RolledBack{};
}

/// Rank 0's optimiser state to all.
void ShareOptimizer(Session& session) {
  std::vector<at::Tensor> state;
  for (const auto& [name, tensor] : session.optimizer->State()) state.push_back(tensor);
  session.gang->BroadcastFromRank0(state);
}

}  // namespace

bool WeightsAreFinite(const Session& session) {
  torch::NoGradGuard no_grad;
  auto sum = at::zeros({}, at::dtype(at::kFloat).device(session.device));
  for (const auto& [name, tensor] : StateDict(*session.model)) {
    if (tensor.is_floating_point()) sum += (tensor * 0).sum();  // 0, or NaN
  }
  return sum.item<float>() == 0;
}

Status SaveCheckpoint(Session& session) {
  session.state.loss_scale = session.loss_scale.scale();
  session.state.loss_scale_streak = session.loss_scale.streak();
  session.state.planned = IsPlanned(session, session.state.step);
  if (!session.is_rank0()) return {};

  // One copy at a time in memory.
  session.gang->SetPosition(session.state.step, "writing the checkpoint before");
  IMGD_TRY(session.saver->Finish());
  session.gang->SetPosition(session.state.step, "copying what a checkpoint holds");
  torch::NoGradGuard no_grad;
  Snapshot snapshot{.state = session.state,
                    .model = CopyToHost(StateDict(*session.model)),
                    .optimizer = CopyToHost(session.optimizer->State())};
  if (session.average) snapshot.average = CopyToHost(session.average->values());
  return session.saver->Start(std::move(snapshot));
}

bool CheckpointDue(const Session& session, uint64_t step) {
  return step == session.total_steps || IsPlanned(session, step);
}

bool IsPlanned(const Session& session, uint64_t step) {
  const auto& settings = session.spec.checkpoint;
  const auto every_steps = static_cast<uint64_t>(settings.every_steps);
  if (every_steps > 0 && step % every_steps == 0) return true;
  const auto every_epochs = static_cast<uint64_t>(settings.every_epochs);
  const auto epochs = session.phases.WholeEpochs(step);
  return every_epochs > 0 && epochs && *epochs % every_epochs == 0;
}

KeepRule KeepRuleOf(const Session& session) {
  const auto& settings = session.spec.checkpoint;
  KeepRule rule{.newest = settings.keep,
                .best = settings.keep_best,
                .every_epochs = settings.keep_every_epochs,
                .every_steps = settings.keep_every_steps};
  if (session.spec.guard.action == "rollback") {
    rule.is_good = [&session, guard = session.state.guard](const CheckpointSummary& checkpoint) {
      return MayGoBackTo(session, guard, checkpoint);
    };
  }
  return rule;
}

Status SaveValidation(const Session& session) {
  const auto& state = session.state;
  const std::string text = ToJson(state.validation);
  const CheckpointStore& store = *session.checkpoints;
  const auto own = CheckpointAt(store, CheckpointPath(store.root(), session.env.generation, state.step));
  if (own) {
    IMGD_TRY(store.Write(*own, "validation.json", text));
    session.saver->Prune(*own);  // it may be better than the one that was the best
    return {};
  }
  const auto before = CheckpointAt(store, session.resumed_from);
  if (!before || before->step != state.step) return {};
  return store.Write(*before, "validation.json", text);
}

Status Resume(Session& session) {
  session.gang->SetPosition(0, "choosing the checkpoint to go on from");
  if (session.is_rank0()) IMGD_TRY(TakeUpNewest(session));
  session.resumed_from = session.gang->BroadcastFromRank0(session.resumed_from);
  if (session.resumed_from.empty()) return {};
  IMGD_ASSIGN(session.state, RunStateFromJson(session.gang->BroadcastFromRank0(ToJson(session.state))));
  ShareOptimizer(session);
  return {};
}

Result<std::optional<RolledBack>> RollBack(Session& session) {
  session.gang->SetPosition(session.state.step, "going back to a checkpoint");
  RolledBack back;
  if (session.is_rank0()) {
    IMGD_ASSIGN(back, TakeUpGood(session));
  }
  back.path = session.gang->BroadcastFromRank0(back.path);
  if (back.path.empty()) return std::nullopt;
  back.step = std::stoull(session.gang->BroadcastFromRank0(std::to_string(back.step)));
  IMGD_ASSIGN(session.state, RunStateFromJson(session.gang->BroadcastFromRank0(ToJson(session.state))));
  std::vector<at::Tensor> weights;
  for (const auto& [name, tensor] : StateDict(*session.model)) weights.push_back(tensor.detach());
  session.gang->BroadcastFromRank0(weights);
  ShareOptimizer(session);
  ShareAverage(session);
  BeginLossScale(session);
  return back;
}

}  // namespace imgd::trainer
