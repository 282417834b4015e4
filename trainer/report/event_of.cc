#include "trainer/report/event_of.h"

#include <unistd.h>

#include <algorithm>

#include "common/utf8.h"
#include "common/version.h"

namespace imgd::report {
namespace {

void Fill(const LoaderFigures& x, v1::LoaderMetrics& out) {
  out.set_interval_seconds(x.interval_seconds);
  out.set_wait_seconds(x.wait_seconds);
  out.set_workers(static_cast<uint32_t>(x.workers));
  out.set_read_seconds(x.read_seconds);
  out.set_decode_seconds(x.decode_seconds);
  out.set_augment_seconds(x.augment_seconds);
  out.set_idle_seconds(x.idle_seconds);
  out.set_images(x.images);
  out.set_bytes(x.bytes);
  out.set_images_left_to_cpu(x.images_left_to_cpu);
}

void Fill(const TimeFigures& x, v1::StepTimes& out) {
  out.set_steps(x.steps);
  out.set_input_seconds(x.input_seconds);
  out.set_forward_seconds(x.forward_seconds);
  out.set_backward_seconds(x.backward_seconds);
  out.set_communication_seconds(x.communication_seconds);
  out.set_optimizer_seconds(x.optimizer_seconds);
  out.set_all_reduce_seconds(x.all_reduce_seconds);
  out.set_all_reduce_hidden_ratio(x.all_reduce_hidden_ratio);
  out.set_h2d_seconds(x.h2d_seconds);
}

void Fill(const RankSpread& x, v1::RankSpread& out) {
  out.set_own_least_seconds(x.own_least);
  out.set_own_mean_seconds(x.own_mean);
  out.set_own_most_seconds(x.own_most);
  out.set_wait_least_seconds(x.wait_least);
  out.set_wait_mean_seconds(x.wait_mean);
  out.set_wait_most_seconds(x.wait_most);
  out.set_slowest_rank(static_cast<uint32_t>(x.slowest_rank));
  out.set_slowest_input_seconds(x.slowest_input);
  out.set_ranks(static_cast<uint32_t>(x.ranks));
}

// An event is kept small, at most a quarter of a megabyte: of a thousand classes some 60 KB.
constexpr size_t kMostClasses = 2000;
constexpr size_t kMostMistakesTold = 100;
constexpr size_t kMostInTable = 100;
constexpr size_t kMostNameBytes = 100;

std::string ShortText(const std::string& text) { return ToUtf8(text.substr(0, kMostNameBytes)); }

std::string NameIn(const ClassFigures& figures, uint32_t label) { return ShortText(figures.names[label]); }

}  // namespace

v1::TrainerEvent EventOf(const Started& x) {
  v1::TrainerEvent event;
  auto& out = *event.mutable_started();
  out.set_pid(::getpid());
  out.set_version(kVersion);
  out.set_world_size(static_cast<uint32_t>(x.world_size));
  out.set_device(ToUtf8(x.device));
  out.set_start_step(x.start_step);
  out.set_total_steps(x.total_steps);
  out.set_steps_per_epoch(x.steps_per_epoch);
  out.set_train_images(x.train_images);
  out.set_val_images(x.val_images);
  out.set_resumed_from(ToUtf8(x.resumed_from));
  if (x.trial) {
    out.mutable_trial()->set_bytes(x.trial->bytes);
    out.mutable_trial()->set_seconds(x.trial->seconds);
    out.mutable_trial()->set_bytes_per_second(x.trial->BytesPerSecond());
    out.mutable_trial()->set_nodes(static_cast<uint32_t>(x.trial->nodes));
  }
  return event;
}

v1::TrainerEvent EventOf(const StepFigures& x) {
  v1::TrainerEvent event;
  auto& out = *event.mutable_step();
  out.set_step(x.step);
  out.set_epoch(x.epoch);
  out.set_loss(x.loss);
  out.set_penalty(x.penalty);
  out.set_top1(x.top1);
  out.set_learning_rate(x.learning_rate);
  out.set_gradient_norm(x.gradient_norm);
  out.set_rank_images_per_second(x.rank_images_per_second);
  out.set_images_per_second(x.images_per_second);
  out.set_input_wait_ratio(x.input_wait_ratio);
  out.set_eta_seconds(x.eta_seconds);
  out.set_total_steps(x.total_steps);
  Fill(x.loader, *out.mutable_loader());
  Fill(x.times, *out.mutable_times());
  if (x.ranks.ranks > 0) Fill(x.ranks, *out.mutable_ranks());
  return event;
}

v1::TrainerEvent EventOf(const EpochFigures& x) {
  v1::TrainerEvent event;
  auto& out = *event.mutable_epoch();
  out.set_epoch(x.epoch);
  out.set_step(x.step);
  out.set_val_loss(x.val_loss);
  out.set_val_top1(x.val_top1);
  out.set_val_top5(x.val_top5);
  out.set_val_images(x.val_images);
  out.set_val_seconds(x.val_seconds);
  out.set_total_epochs(x.total_epochs);
  return event;
}

v1::TrainerEvent EventOf(const CheckpointFigures& x) {
  v1::TrainerEvent event;
  auto& out = *event.mutable_checkpoint();
  out.set_path(ToUtf8(x.path));
  out.set_step(x.step);
  out.set_generation(x.generation);
  out.set_size_bytes(x.size_bytes);
  out.set_manifest_sha256(x.manifest_sha256);
  out.set_write_seconds(x.write_seconds);
  return event;
}

v1::TrainerEvent EventOf(const Profiled& x) {
  v1::TrainerEvent event;
  auto& out = *event.mutable_profile();
  out.set_step(x.step);
  out.set_rank(static_cast<uint32_t>(x.rank));
  out.set_trace(ToUtf8(x.trace));
  out.set_table(ToUtf8(x.text));
  return event;
}

v1::TrainerEvent EventOf(const Finished& x) {
  v1::TrainerEvent event;
  auto& out = *event.mutable_finished();
  out.set_step(x.step);
  out.set_val_top1(x.val_top1);
  out.set_val_top5(x.val_top5);
  return event;
}

v1::TrainerEvent EventOf(const Failed& x) {
  v1::TrainerEvent event;
  auto& out = *event.mutable_failed();
  out.set_message(ToUtf8(x.message));
  out.set_bad_input(x.bad_input);
  out.set_collective_broken(x.collective_broken);
  return event;
}

v1::TrainerEvent EventOf(const BadImage& x) {
  v1::TrainerEvent event;
  auto& out = *event.mutable_bad_image();
  out.set_path(ToUtf8(x.path));
  out.set_error(ToUtf8(x.error));
  out.set_count(x.count);
  return event;
}

v1::TrainerEvent EventOf(const ClassFigures& x) {
  v1::TrainerEvent event;
  auto& out = *event.mutable_classes();
  out.set_step(x.step);
  out.set_epoch(x.epoch);
  out.set_class_count(static_cast<uint32_t>(x.names.size()));
  auto labels = WorstFirst(x);
  if (labels.size() > kMostClasses) labels.resize(kMostClasses);
  std::ranges::sort(labels);
  for (const uint32_t label : labels) {
    auto& added = *out.add_classes();
    added.set_label(label);
    added.set_name(NameIn(x, label));
    added.set_images(x.counts[label].images);
    added.set_top1(x.counts[label].top1);
    added.set_top5(x.counts[label].top5);
  }
  for (const auto& mistake : MostFrequentMistakes(x, kMostMistakesTold)) {
    auto& added = *out.add_mistakes();
    added.set_name(NameIn(x, mistake.label));
    added.set_answer(NameIn(x, mistake.answer));
    added.set_images(mistake.images);
  }
  for (const auto& image : x.worst) {
    auto& added = *out.add_worst();
    added.set_name(ShortText(image.name));
    added.set_class_name(NameIn(x, image.label));
    added.set_answer(NameIn(x, image.answer));
    added.set_probability(image.probability);
    added.set_loss(image.loss);
  }
  if (x.names.size() <= kMostInTable) out.mutable_confusion()->Assign(x.confusion.begin(), x.confusion.end());
  return event;
}

v1::TrainerEvent EventOf(const ShownImages& x) {
  v1::TrainerEvent event;
  auto& out = *event.mutable_samples();
  out.set_step(x.step);
  out.set_epoch(x.epoch);
  for (const auto& shown : x.images) {
    auto& added = *out.add_images();
    added.set_name(ShortText(shown.image.name));
    added.set_class_name(ShortText(shown.class_name));
    added.set_answer(ShortText(shown.answer));
    added.set_probability(shown.image.probability);
    added.set_loss(shown.image.loss);
    added.set_worst(shown.worst);
    added.set_right(shown.image.label == shown.image.answer);
    added.set_picture(shown.picture);
  }
  return event;
}

}  // namespace imgd::report
