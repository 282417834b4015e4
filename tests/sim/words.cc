#include "tests/sim/words.h"

#include <fmt/ranges.h>

namespace imgd::sim {
namespace {

std::string Words(const AppendEvent& event) {
  return fmt::format("job {} is {} (generation {}): {}", event.job, NameOf(event.to), event.generation,
                     event.reason.text);
}
std::string Words(const AppendDecision& decision) {
  return fmt::format("decides of {}{}: {}",
                     decision.job == JobId() ? "" : fmt::format("job {} ", decision.job), decision.node,
                     decision.reason.text);
}
std::string Words(const AppendRankExit& end) {
  return fmt::format("knows that rank {} of {} ended{}", end.exit.rank, InWords(end.run),
                     end.exit.by_us ? ", by its own doing" : "");
}
std::string Words(const SaveCheckpoint& saved) {
  return fmt::format("accepts checkpoint {} of job {}", saved.checkpoint.path, saved.job);
}
std::string Words(const SaveRungResult& result) {
  return fmt::format("notes that job {} has {} at rung {} of sweep {}", result.job, result.value, result.rung,
                     result.sweep);
}
std::string Words(const SendPrepare& send) {
  return fmt::format("asks {} for a port for {}", send.node, InWords(send.run));
}
std::string Words(const SendStart& send) {
  return fmt::format("tells {} to start ranks {} and on of {} on devices {}, resuming from {}", send.node,
                     send.first_rank, InWords(send.run), fmt::join(send.devices, ","),
                     send.resume_from.empty() ? "nothing" : send.resume_from.front());
}
std::string Words(const SendStop& send) {
  return fmt::format("tells {} to stop {}{}", send.node, InWords(send.run),
                     send.checkpoint_first ? " after a checkpoint" : "");
}
std::string Words(const SendForget& send) {
  return fmt::format("tells {} to forget {}", send.node, InWords(send.run));
}
std::string Words(const Disconnect& send) {
  return fmt::format("ends the stream of {}: {}", send.node, send.why.message);
}

}  // namespace

std::string InWords(RunKey run) { return fmt::format("{}/{}", run.job, run.generation); }

std::string InWords(RunPhase phase) {
  switch (phase) {
    case RunPhase::kUnheard:
      return "is not known";
    case RunPhase::kPrepared:
      return "has a port";
    case RunPhase::kRunning:
      return "runs";
    case RunPhase::kStopping:
      return "is being stopped";
    case RunPhase::kGone:
      return "is gone";
  }
  return "?";
}

std::string InWords(const TrainerEvent& event) {
  switch (event.kind) {
    case TrainerEvent::Kind::kStarted:
      return "trains";
    case TrainerEvent::Kind::kProgress:
      return fmt::format("thinks that {} s are left",
                         std::chrono::duration_cast<std::chrono::seconds>(event.left).count());
    case TrainerEvent::Kind::kEpoch:
      return fmt::format("has {} after epoch {}", event.figures.top1, event.figures.epoch);
    case TrainerEvent::Kind::kCheckpoint:
      return "wrote " + event.checkpoint.path;
    case TrainerEvent::Kind::kFinished:
      return "trained to the last step";
    case TrainerEvent::Kind::kFailed:
      return "failed: " + event.failure.message;
  }
  return "?";
}

std::string InWords(const Action& action) {
  return std::visit([](const auto& known) { return Words(known); }, action);
}

NodeId NodeOf(const Action& action) {
  return std::visit(
      [](const auto& known) {
        using Known = std::decay_t<decltype(known)>;
        // A decision about a node is not for it.
        if constexpr (requires { known.node; } && !std::is_same_v<Known, AppendDecision>) return known.node;
        return NodeId();
      },
      action);
}

}  // namespace imgd::sim
