#include "trainer/loop/checkpoint_saver.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "common/clock.h"

namespace imgd::trainer {
namespace {

/// How far the writing thread stands back behind those that train.
constexpr int kNice = 10;

/// Of the calling thread alone, which is how Linux takes a thread's number here.
void GiveWay() { static_cast<void>(::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), kNice)); }

}  // namespace

const char* DtypeName(at::ScalarType type) { return type == at::kLong ? "I64" : "F32"; }

HostTensors CopyToHost(const NamedTensors& named) {
  HostTensors out;
  for (const auto& [name, tensor] : named) {
    auto copy = tensor.detach().to(at::kCPU, tensor.scalar_type(), /*non_blocking=*/false, /*copy=*/true);
    out.copies.push_back(copy.contiguous());
    const auto& kept = out.copies.back();
    out.views.push_back({name,
                         DtypeName(kept.scalar_type()),
                         kept.sizes().vec(),
                         {static_cast<const char*>(kept.data_ptr()), kept.nbytes()}});
  }
  // Wider elements first, so that each lies at a multiple of its size.
  std::stable_sort(out.views.begin(), out.views.end(), [](const TensorView& a, const TensorView& b) {
    return ElementBytes(a.dtype) > ElementBytes(b.dtype);
  });
  return out;
}

CheckpointSaver::~CheckpointSaver() {
  if (thread_.joinable()) thread_.join();
}

Status CheckpointSaver::Start(Snapshot snapshot) {
  IMGD_TRY(Finish());
  done_ = false;
  thread_ = std::thread([this, snapshot = std::move(snapshot)] {
    GiveWay();
    try {
      outcome_ = Write(snapshot);
    } catch (const std::exception& e) {
      outcome_ = Fail(ErrorCode::kInternal, "cannot write a checkpoint: {}", e.what());
    }
    done_ = true;
  });
  return {};
}

Status CheckpointSaver::Poll() { return thread_.joinable() && done_ ? Finish() : Status(); }

Status CheckpointSaver::Finish() {
  if (!thread_.joinable()) return {};
  thread_.join();
  const auto outcome = std::exchange(outcome_, std::nullopt);
  if (!*outcome && outcome->error().code == ErrorCode::kAlreadyExists) {
    reporter_.Note(fmt::format("no checkpoint is written: {}", outcome->error().message));
    return {};
  }
  if (!*outcome) return tl::unexpected(outcome->error());
  const CommittedCheckpoint& committed = **outcome;
  reporter_.On(report::CheckpointFigures{committed.ref.path, committed.ref.step, committed.ref.generation,
                                         committed.size_bytes, committed.manifest_sha256});
  Prune(committed.ref);
  return {};
}

void CheckpointSaver::Prune(const CheckpointRef& newest) {
  if (auto removed = RemoveOldCheckpoints(place_.root, newest, place_.keep); !removed)
    reporter_.Note(fmt::format("old checkpoints stay: {}", removed.error().ToString()));
}

Result<CommittedCheckpoint> CheckpointSaver::Write(const Snapshot& snapshot) const {
  IMGD_ASSIGN(auto writer, CheckpointWriter::Begin(place_.root, place_.generation, snapshot.state.step));
  Lineage lineage = lineage_;
  lineage.step = snapshot.state.step;
  lineage.epoch = snapshot.state.epoch;
  lineage.written_us = SystemClock().Wall().micros;
  Metadata metadata = ModelMetadata(lineage);
  metadata["format"] = "pt";
  IMGD_TRY(writer.AddTensors("model.safetensors", snapshot.model.views, metadata));
  IMGD_TRY(writer.AddTensors("optimizer.safetensors", snapshot.optimizer.views, {}));
  if (snapshot.average) IMGD_TRY(writer.AddTensors("ema.safetensors", snapshot.average->views, metadata));
  IMGD_TRY(writer.Add("state.json", {ToJson(snapshot.state)}));
  IMGD_TRY(writer.Add("lineage.json", {ToJson(lineage)}));
  return writer.Commit();
}

}  // namespace imgd::trainer
