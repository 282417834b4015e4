// How the shim ends the ranks: a checkpoint first if so asked, SIGTERM, SIGKILL.
#include <signal.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <sstream>

#include "agent/process.h"
#include "agent/shim/keeper.h"
#include "imgd/v1/trainer.pb.h"

namespace imgd {
namespace {

/// `message` with its length in front, as trainer.proto has it.
std::string Frame(const google::protobuf::MessageLite& message) {
  const std::string body = message.SerializeAsString();
  std::string out;
  for (int i = 0; i < 4; ++i) out += static_cast<char>((body.size() >> (8 * i)) & 0xFF);
  return out + body;
}

}  // namespace

void Keeper::OnCommand(const std::string& command) {
  std::istringstream in(command);
  std::string verb;
  int64_t grace_ms = 0;
  int checkpoint = 0;
  in >> verb;
  if (verb == "kill") {
    KillAll();
  } else if (verb == "stop" && in >> grace_ms >> checkpoint) {
    StopRanks(std::chrono::milliseconds(std::max<int64_t>(grace_ms, 0)), checkpoint != 0);
  } else {
    std::fprintf(stderr, "unknown command '%s': stop GRACE_MS 0|1 and kill are known\n", command.c_str());
  }
}

void Keeper::StopRanks(Duration grace, bool checkpoint) {
  if (record_.phase == ShimPhase::kGone || AllEnded()) return;
  if (record_.phase != ShimPhase::kStopping) {
    record_.phase = ShimPhase::kStopping;
    Publish();
  }
  // Nobody but a trainer can be asked for one.
  if (!checkpoint || !spec_.Trains()) {
    Terminate(grace);
    return;
  }
  if (stop_ != Stop::kNo) return;
  for (uint32_t i = 0; i < ranks_.size(); ++i) {
    if (record_.ranks[i].state != RankState::kRunning) continue;
    // A checkpoint needs every rank; one that can't be asked means that there will be none.
    if (!AskForCheckpoint(i)) {
      Terminate(grace);
      return;
    }
  }
  stop_ = Stop::kCheckpoint;
  loop_->Cancel(stop_timer_);
  stop_timer_ = loop_->After(grace, [this, grace] { Terminate(grace); });
}

bool Keeper::AskForCheckpoint(uint32_t local_rank) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  // Relative to the shim's own folder.
  const auto path = dir_.Ranks().lexically_relative(dir_.path) / ControlSocket(local_rank);
  std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  v1::TrainerCommand command;
  command.mutable_stop()->set_checkpoint_first(true);
  if (!fd.valid() || ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      !WriteAll(fd.get(), Frame(command), "control socket")) {
    return false;
  }
  ranks_[local_rank].control = std::move(fd);
  return loop_
      ->Watch(ranks_[local_rank].control.get(), EPOLLIN,
              [this, local_rank](uint32_t) { OnControl(local_rank); })
      .has_value();
}

void Keeper::OnControl(uint32_t local_rank) {
  UniqueFd& control = ranks_[local_rank].control;
  char buffer[4096];
  const ssize_t n = ::recv(control.get(), buffer, sizeof buffer, 0);
  v1::TrainerReply reply;
  const bool whole = n > 4 && reply.ParseFromArray(buffer + 4, static_cast<int>(n - 4));
  loop_->Unwatch(control.get());
  control.reset();
  if (whole && !reply.error().empty() && stop_ == Stop::kCheckpoint) {
    std::fprintf(stderr, "rank %u takes no checkpoint: %s\n", record_.ranks[local_rank].rank,
                 reply.error().c_str());
    Terminate(std::chrono::milliseconds(spec_.grace_ms));
  }
}

void Keeper::Terminate(Duration grace) {
  const Instant deadline = std::chrono::steady_clock::now() + grace;
  if (stop_ == Stop::kKill || (stop_ == Stop::kTerm && stop_deadline_ <= deadline)) return;
  if (stop_ != Stop::kTerm) {
    for (const auto& rank : record_.ranks) {
      if (rank.state != RankState::kRunning) continue;
      ::kill(static_cast<pid_t>(-rank.pid), SIGTERM);
      ::kill(static_cast<pid_t>(-rank.pid), SIGCONT);  // one that is stopped can't obey
    }
  }
  stop_ = Stop::kTerm;
  stop_deadline_ = deadline;
  loop_->Cancel(stop_timer_);
  stop_timer_ = loop_->After(grace, [this] { KillAll(); });
}

void Keeper::KillAll() {
  stop_ = Stop::kKill;
  loop_->Cancel(stop_timer_);
  cgroup_.Kill();
  for (const pid_t pid : DescendantsOf(::getpid())) ::kill(pid, SIGKILL);
  // What was being forked meanwhile is found when the ranks have ended.
}

}  // namespace imgd
