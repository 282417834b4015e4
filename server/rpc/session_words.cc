#include "server/rpc/session_words.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "common/utf8.h"

namespace imgd {
namespace {

constexpr size_t kMostCommandBytes = 200;
constexpr std::string_view kUserActor = "user:";

/// The words of a command in a line of text, cut.
std::string LineOf(const v1::SessionCommand& command) {
  std::string line;
  for (const auto& argument : command.arguments()) {
    if (!line.empty()) line += ' ';
    line += argument;
    if (line.size() > kMostCommandBytes) break;
  }
  if (line.size() > kMostCommandBytes) line = line.substr(0, kMostCommandBytes) + "...";
  return OneLine(line);
}

}  // namespace

std::string WhatOf(const v1::SessionBegin& begin) {
  std::string what = "a shell";
  if (begin.has_forward()) {
    what = begin.forward().port() == 0 ? "forwarding to TensorBoard"
                                       : fmt::format("forwarding to port {}", begin.forward().port());
  } else if (!begin.command().arguments().empty()) {
    what = fmt::format("`{}`", LineOf(begin.command()));
  }
  if (begin.has_rank())
    what += fmt::format(" beside rank {} of job {}", begin.rank().rank(), begin.rank().job_id());
  return what;
}

std::string SessionNote::Begun() const { return fmt::format("{} begins {} on node {}", actor, what, node); }

std::string SessionNote::Over() const {
  return fmt::format("{} on node {}, of {}, is over", what, node, actor);
}

std::vector<SessionNote> LeftOpen(const std::vector<StoredDecision>& decisions) {
  std::vector<SessionNote> open;
  for (const auto& decision : decisions) {
    SessionNote note{.job = decision.job,
                     .node = NodeId(decision.node),
                     .actor = decision.actor.substr(std::min(kUserActor.size(), decision.actor.size())),
                     .what = ""};
    if (decision.reason == static_cast<int>(ReasonCode::kSessionBegun)) {
      const size_t before = note.Begun().size() - fmt::format(" on node {}", note.node).size();
      const size_t around = note.Begun().size();
      if (decision.text.size() >= around)
        note.what = decision.text.substr(before, decision.text.size() - around);
      open.push_back(std::move(note));
    } else if (decision.reason == static_cast<int>(ReasonCode::kSessionEnded)) {
      const auto begun = std::find_if(open.begin(), open.end(), [&decision](const SessionNote& known) {
        return decision.text.starts_with(known.Over());
      });
      if (begun != open.end()) open.erase(begun);
    }
  }
  return open;
}

std::string HowOf(const v1::SessionEnd& end) {
  if (!end.error().empty()) return OneLine(end.error());
  return end.signal() != 0 ? fmt::format("signal {}", end.signal())
                           : fmt::format("exit code {}", end.exit_code());
}

}  // namespace imgd
