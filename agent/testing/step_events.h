#pragma once

#include <string>

#include "imgd/v1/trainer.pb.h"

namespace imgd {

/// A report of a rank that made `images` images in `seconds`.
inline v1::TrainerEvent StepEvent(uint64_t sequence, uint64_t step, double images, double seconds) {
  v1::TrainerEvent event;
  event.set_sequence(sequence);
  auto* report = event.mutable_step();
  report->set_step(step);
  report->set_loss(2.5);
  report->set_rank_images_per_second(images / seconds);
  auto* loader = report->mutable_loader();
  loader->set_interval_seconds(seconds);
  loader->set_wait_seconds(seconds / 4);
  loader->set_workers(2);
  loader->set_read_seconds(seconds / 2);
  loader->set_decode_seconds(seconds);
  loader->set_augment_seconds(seconds / 8);
  loader->set_idle_seconds(seconds / 16);
  loader->set_images(static_cast<uint64_t>(images) + 1);
  loader->set_bytes(1000);
  auto* times = report->mutable_times();
  times->set_steps(2);
  times->set_input_seconds(seconds / 32);
  times->set_forward_seconds(seconds / 4);
  times->set_backward_seconds(seconds / 2);
  times->set_communication_seconds(seconds / 8);
  times->set_optimizer_seconds(seconds / 16);
  auto* ranks = report->mutable_ranks();
  ranks->set_ranks(2);
  ranks->set_slowest_rank(1);
  ranks->set_own_mean_seconds(0.5);
  ranks->set_own_most_seconds(0.75);
  return event;
}

/// As a trainer writes it to its file: length and body.
inline std::string EventFrame(const v1::TrainerEvent& event) {
  const std::string body = event.SerializeAsString();
  std::string frame;
  for (size_t i = 0; i < 4; ++i) frame.push_back(static_cast<char>(body.size() >> (8 * i) & 0xFF));
  return frame + body;
}

}  // namespace imgd
