#include "trainer/loop/saving.h"

#include <cstring>
#include <unordered_map>

#include "common/files.h"
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

Result<RunState> TakeUp(Session& session, const CheckpointRef& ref) {
  IMGD_ASSIGN(const auto files, ReadCheckpoint(ref));
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
  IMGD_ASSIGN(const auto model, ParseSafetensors(files.model));
  IMGD_ASSIGN(const auto optimizer, ParseSafetensors(files.optimizer));
  IMGD_TRY(CopyInto(StateDict(*session.model), model));
  IMGD_TRY(CopyInto(session.optimizer->State(), optimizer));
  if (session.average) IMGD_TRY(TakeUpAverage(session, files));
  if (const auto text = ReadFile(ref.path / "validation.json")) {
    if (const auto validation = ValidationFromJson(*text)) state.validation = *validation;
  }
  return state;
}

/// Weights that are no numbers are of no use to go on from, and would push good ones out. The same on all
/// ranks.
Status CheckThatWeightsAreFinite(const Session& session) {
  torch::NoGradGuard no_grad;
  auto sum = at::zeros({}, at::dtype(at::kFloat).device(session.device));
  for (const auto& [name, tensor] : StateDict(*session.model)) {
    if (tensor.is_floating_point()) sum += (tensor * 0).sum();  // 0, or NaN
  }
  if (sum.item<float>() == 0) return {};
  return Fail(
      ErrorCode::kInvalidArgument,
      "training diverged: there are weights that are no finite numbers after step {}; a lower optimizer.lr "
      "or a longer schedule.warmup_epochs may help",
      session.state.step);
}

/// Rank 0's part. Leaves the session alone where there is nothing to go on from.
Status TakeUpNewest(Session& session) {
  IMGD_ASSIGN(const auto candidates, ResumeCandidates(session.checkpoint_root, session.env.resume_file));
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
              candidates.size(), session.checkpoint_root.native());
}

}  // namespace

Status SaveCheckpoint(Session& session) {
  ShareBuffers(session);
  IMGD_TRY(CheckThatWeightsAreFinite(session));
  session.state.loss_scale = session.loss_scale.scale();
  session.state.loss_scale_streak = session.loss_scale.streak();
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

Status SaveValidation(const Session& session) {
  const auto& state = session.state;
  const std::string text = ToJson(state.validation);
  const auto own = CheckpointAt(CheckpointPath(session.checkpoint_root, session.env.generation, state.step));
  if (own) {
    IMGD_TRY(WriteFileAtomically(own->path / "validation.json", text));
    session.saver->Prune(*own);  // it may be better than the one that was the best
    return {};
  }
  const auto before = CheckpointAt(session.resumed_from);
  if (!before || before->step != state.step) return {};
  return WriteFileAtomically(before->path / "validation.json", text);
}

Status Resume(Session& session) {
  session.gang->SetPosition(0, "choosing the checkpoint to go on from");
  if (session.is_rank0()) IMGD_TRY(TakeUpNewest(session));
  session.resumed_from = session.gang->BroadcastFromRank0(session.resumed_from);
  if (session.resumed_from.empty()) return {};
  IMGD_ASSIGN(session.state, RunStateFromJson(session.gang->BroadcastFromRank0(ToJson(session.state))));
  std::vector<at::Tensor> state;
  for (const auto& [name, tensor] : session.optimizer->State()) state.push_back(tensor);
  session.gang->BroadcastFromRank0(state);
  return {};
}

}  // namespace imgd::trainer
