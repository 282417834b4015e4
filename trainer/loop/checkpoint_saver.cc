#include "trainer/loop/checkpoint_saver.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "common/clock.h"
#include "common/thread_nice.h"

namespace imgd::trainer {
namespace {

/// How far the writing thread stands back behind those that train.
constexpr int kNice = 10;

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

/// In the thread, which is free.
void CheckpointSaver::Run(std::function<void()> work) {
  done_ = false;
  thread_ = std::thread([this, work = std::move(work)] {
    SetThreadNice(kNice);
    work();
    done_ = true;
  });
}

Status CheckpointSaver::Start(Snapshot snapshot) {
  IMGD_TRY(Finish());
  Run([this, snapshot = std::make_shared<Snapshot>(std::move(snapshot))] {
    const auto begun = std::chrono::steady_clock::now();
    try {
      written_ = Write(*snapshot);
      write_seconds_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
    } catch (const std::exception& e) {
      written_ = Fail(ErrorCode::kInternal, "cannot write a checkpoint: {}", e.what());
    }
  });
  return {};
}

Status CheckpointSaver::Poll() { return thread_.joinable() && done_ ? TakeOutcome() : Status(); }

Status CheckpointSaver::Finish() {
  while (thread_.joinable()) IMGD_TRY(TakeOutcome());
  return {};
}

/// Waits for the thread, which after a checkpoint has another task.
Status CheckpointSaver::TakeOutcome() {
  thread_.join();
  if (const auto removed = std::exchange(removed_, std::nullopt)) {
    if (!*removed) reporter_.Note(fmt::format("old checkpoints stay: {}", removed->error().ToString()));
    return {};
  }
  const auto written = std::exchange(written_, std::nullopt);
  if (!*written && written->error().code == ErrorCode::kAlreadyExists) {
    reporter_.Note(fmt::format("no checkpoint is written: {}", written->error().message));
    return {};
  }
  if (!*written) return tl::unexpected(written->error());
  const CommittedCheckpoint& committed = **written;
  reporter_.On(report::CheckpointFigures{committed.ref.path, committed.ref.step, committed.ref.generation,
                                         committed.size_bytes, committed.manifest_sha256, write_seconds_});
  Prune(committed.ref);
  return {};
}

void CheckpointSaver::Prune(const CheckpointRef& newest) {
  Run([this, newest, rule = place_.keep()] {
    try {
      removed_ = RemoveOldCheckpoints(*place_.store, newest, rule);
    } catch (const std::exception& e) {
      removed_ = Fail(ErrorCode::kInternal, "{}", e.what());
    }
  });
}

Result<CommittedCheckpoint> CheckpointSaver::Write(const Snapshot& snapshot) const {
  IMGD_ASSIGN(auto writer, place_.store->Begin(place_.generation, snapshot.state.step));
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
  return place_.store->Commit(std::move(writer));
}

}  // namespace imgd::trainer
