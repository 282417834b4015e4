#include "agent/relay.h"

#include <algorithm>

namespace imgd {
namespace {

constexpr size_t kBatchBytes = 256 << 10;
constexpr size_t kWindowBytes = 1 << 20;

void SetRun(const RunKey& key, v1::RunId* run) {
  run->set_job_id(key.job.value());
  run->set_generation(key.generation.value());
}

}  // namespace

RunRelay::RunRelay(const RunDir& dir, const RunSpec& spec) : key_(spec.key), first_rank_(spec.first_rank) {
  for (uint32_t i = 0; i < spec.local_world_size; ++i) {
    streams_.push_back(
        {EventFollower(dir, i), LogFollower(dir, i, first_rank_ + i, key_.generation.value()), {}, {}});
  }
}

RunRelay::Stream* RunRelay::OfRank(uint32_t rank) {
  const uint64_t index = static_cast<uint64_t>(rank) - first_rank_;
  return rank >= first_rank_ && index < streams_.size() ? &streams_[index] : nullptr;
}

void RunRelay::GoOn(const std::vector<v1::StreamPosition>& positions) {
  for (auto& stream : streams_) {
    stream.event_window.Clear();
    stream.log_window.Clear();
    stream.events_at_end = false;
    stream.log_at_end = false;
  }
  // Once for each stream: one that goes on from its beginning forgets what it knows of places in its file.
  for (uint32_t i = 0; i < streams_.size(); ++i) {
    const auto stored = std::find_if(positions.rbegin(), positions.rend(), [&](const auto& position) {
      return position.run().job_id() == key_.job.value() &&
             position.run().generation() == key_.generation.value() && position.rank() == first_rank_ + i;
    });
    streams_[i].events.GoOnAfter(stored == positions.rend() ? 0 : stored->event_sequence());
    streams_[i].log.GoOnAfter(stored == positions.rend() ? 0 : stored->line_number());
  }
}

void RunRelay::Acknowledge(const v1::EventsAck& ack) {
  Stream* stream = OfRank(ack.rank());
  if (stream == nullptr) return;
  stream->events.Acknowledge(ack.sequence());
  stream->event_window.Acknowledged(ack.sequence());
}

void RunRelay::Acknowledge(const v1::LogsAck& ack) {
  Stream* stream = OfRank(ack.rank());
  if (stream == nullptr) return;
  stream->log.Acknowledge(ack.line_number());
  stream->log_window.Acknowledged(ack.line_number());
}

/// What was stored is read over in pieces, between which the agent does its other work.
bool RunRelay::PumpEvents(uint32_t rank, Stream& stream, const Send& send) {
  while (stream.event_window.bytes() < kWindowBytes) {
    v1::ConnectRequest request;
    auto* batch = request.mutable_trainer_events();
    const size_t bytes = stream.events.Read(kBatchBytes, batch);
    stream.events_at_end = gone_ && bytes == 0 && !stream.events.more();
    if (bytes == 0) return stream.events.more();
    SetRun(key_, batch->mutable_run());
    batch->set_rank(rank);
    stream.event_window.Sent(stream.events.last(), bytes);
    send(std::move(request));
  }
  return false;
}

void RunRelay::PumpLog(uint32_t rank, Stream& stream, const Send& send) {
  while (stream.log_window.bytes() < kWindowBytes) {
    v1::ConnectRequest request;
    auto* batch = request.mutable_log_lines();
    const size_t bytes = stream.log.Read(kBatchBytes, batch);
    stream.log_at_end = gone_ && bytes == 0;
    if (bytes == 0) return;
    SetRun(key_, batch->mutable_run());
    batch->set_rank(rank);
    stream.log_window.Sent(stream.log.last(), bytes);
    send(std::move(request));
  }
}

bool RunRelay::Pump(const Send& send) {
  bool more = false;
  for (uint32_t i = 0; i < streams_.size(); ++i) {
    more = PumpEvents(first_rank_ + i, streams_[i], send) || more;
    PumpLog(first_rank_ + i, streams_[i], send);
  }
  return more;
}

void RunRelay::SetGone(const RunRecord& record, bool lines_are_known) {
  gone_ = true;
  for (size_t i = 0; lines_are_known && i < streams_.size() && i < record.ranks.size(); ++i) {
    streams_[i].log.SetEnd(record.ranks[i].lines);
  }
}

bool RunRelay::Drained() const {
  for (const auto& stream : streams_) {
    if (!stream.events_at_end || !stream.log_at_end) return false;
    if (!stream.events.AllAcknowledged() || !stream.log.AllAcknowledged()) return false;
  }
  return gone_;
}

}  // namespace imgd
