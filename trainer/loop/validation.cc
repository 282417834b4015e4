#include "trainer/loop/validation.h"

#include <chrono>
#include <cmath>
#include <cstring>
#include <set>

#include "trainer/input/feed.h"
#include "trainer/loop/shown_images.h"
#include "trainer/loop/tally.h"
#include "trainer/optim/autocast.h"

namespace imgd::trainer {
namespace {

void Report(Session& session, double seconds) {
  if (!session.is_rank0()) return;
  const ValidationResult& result = session.state.validation;
  session.reporter.On(
      report::EpochFigures{.epoch = static_cast<uint32_t>(session.phases.Epochs(session.state.step)),
                           .total_epochs = static_cast<uint32_t>(session.spec.train.epochs),
                           .step = session.state.step,
                           .val_loss = result.loss,
                           .val_top1 = result.top1,
                           .val_top5 = result.top5,
                           .val_images = result.images,
                           .val_seconds = seconds});
}

/// Rank 0 looks at the images' shapes, once, so that all ranks have the same plan whatever they can read.
void PlanShapes(Session& session) {
  if (session.spec.data.val_shape != "rectangular" || session.val_shapes) return;
  session.gang->SetPosition(session.state.step, "looking at the shapes of the validation images");
  data::Shapes shapes;
  std::string text;
  if (session.is_rank0()) {
    shapes = data::PlanShapes(*session.val, session.spec.train.global_batch, session.spec.data.val_size,
                              session.workers);
    text.resize(shapes.order.size() * sizeof(uint32_t) + shapes.batches.size() * sizeof(data::Shapes::Size));
    std::memcpy(text.data(), shapes.order.data(), shapes.order.size() * sizeof(uint32_t));
    std::memcpy(text.data() + shapes.order.size() * sizeof(uint32_t), shapes.batches.data(),
                shapes.batches.size() * sizeof(data::Shapes::Size));
  }
  text = session.gang->BroadcastFromRank0(text);
  shapes.order.resize(session.val->size());
  const size_t order_bytes = shapes.order.size() * sizeof(uint32_t);
  shapes.batches.resize((text.size() - order_bytes) / sizeof(data::Shapes::Size));
  std::memcpy(shapes.order.data(), text.data(), order_bytes);
  std::memcpy(shapes.batches.data(), text.data() + order_bytes, text.size() - order_bytes);
  session.val_shapes = std::make_shared<const data::Shapes>(std::move(shapes));
}

}  // namespace

void ShareBuffers(Session& session) {
  session.gang->SetPosition(session.state.step, "broadcast of batch-norm buffers");
  std::vector<at::Tensor> buffers;
  std::set<std::string> names;
  for (const auto& [name, buffer] : Buffers(*session.model)) {
    buffers.push_back(buffer);
    names.insert(name);
  }
  if (session.average) {
    for (const auto& [name, value] : session.average->values()) {
      if (names.contains(name)) buffers.push_back(value);
    }
  }
  session.gang->BroadcastFromRank0(buffers);
}

void ShareAverage(Session& session) {
  if (!session.average) return;
  session.gang->SetPosition(session.state.step, "broadcast of averaged weights");
  std::vector<at::Tensor> values;
  for (const auto& [name, value] : session.average->values()) values.push_back(value);
  session.gang->BroadcastFromRank0(values);
}

Result<ValidationEnd> Measure(Session& session) {
  torch::NoGradGuard no_grad;
  const Pulse::During validation(*session.pulse, Activity::kValidation);
  session.gang->SetPosition(session.state.step, "validation");
  session.model->eval();
  ValidationEnd end;
  Tally tally(session.device, session.val->classes().size(), session.val->size());
  PlanShapes(session);
  const WithAverage averaged(session.average.get());
  Feed feed(*session.val, session.ValOptions(), session.device, session.spec.data.normalisation);
  while (true) {
    IMGD_ASSIGN(const auto batch, feed.Next());
    if (!batch) break;  // after as many batches on every rank
    session.gang->SetPosition(session.state.step, "validation");
    if (session.saver) IMGD_TRY(session.saver->Poll());
    const auto taken = session.commands.Take();
    auto pending = session.gang->StartSum({taken.checkpoint, taken.stop, taken.stop_with_checkpoint});
    if (batch->count > 0) {
      const Autocast autocast(session.device.type(), session.compute_type);
      const auto logits = session.model->forward(batch->images);
      tally.Add(logits.to(at::kFloat), batch->labels, batch->samples);
    }
    const auto asked = pending.Wait();
    end.asked.checkpoint |= asked[0] > 0;
    end.asked.stop |= asked[1] > 0;
    end.asked.stop_with_checkpoint |= asked[2] > 0;
    if (end.asked.stop) {
      end.stopped = true;
      return end;
    }
  }
  end.result = tally.Total(*session.gang, session.state.step);
  end.classes = tally.OfClasses(*session.gang, *session.val);
  if (end.result.images == 0) {
    return Fail(ErrorCode::kInvalidArgument,
                "none of the images of data.val ({}) could be decoded; the log names them with what is wrong",
                session.spec.data.val);
  }
  return end;
}

Result<ValidationEnd> Validate(Session& session) {
  const auto start = std::chrono::steady_clock::now();
  IMGD_ASSIGN(ValidationEnd end, Measure(session));
  if (end.stopped) return end;
  session.state.validation = end.result;
  Report(session, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  if (session.is_rank0()) {
    end.classes.step = session.state.step;
    end.classes.epoch = session.phases.Epochs(session.state.step);
    session.reporter.On(end.classes);
    const Pulse::During showing(*session.pulse, Activity::kValidation);  // it reads images
    session.reporter.On(ShownImagesOf(end.classes, *session.val));
  }
  // No end of the run: after a few steps from scratch the batch-norm statistics alone can do that.
  if (!std::isfinite(end.result.loss) && session.is_rank0()) {
    session.reporter.Note(
        fmt::format("the validation loss is no finite number after step {}; if it stays so, a "
                    "lower optimizer.lr or a longer schedule.warmup_epochs may help",
                    session.state.step));
  }
  return end;
}

}  // namespace imgd::trainer
