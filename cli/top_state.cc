#include "cli/top_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>

#include "cli/words.h"

namespace imgd::cli {
namespace {

using Kind = Key::Kind;
using Prompt = TopState::Prompt;

constexpr size_t kLongestNumber = 12;

std::string LowerCase(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(), [](unsigned char c) { return std::tolower(c); });
  return out;
}

bool Matches(const v1::Job& job, const std::string& lower) {
  const std::string all = fmt::format("{} {} {} {} {}", job.id(), job.name(), StateName(job.state()),
                                      job.owner(), job.reason_text());
  return LowerCase(all).find(lower) != std::string::npos;
}

void EraseCharacter(std::string& text) {
  while (!text.empty()) {
    const auto byte = static_cast<unsigned char>(text.back());
    text.pop_back();
    if ((byte & 0xC0) != 0x80) return;
  }
}

/// By how many lines a key moves; 0 for none.
int MoveOf(const Key& key, int page) {
  constexpr int kFar = 1'000'000;
  if (key.Is("j")) return 1;
  if (key.Is("k")) return -1;
  if (key.Is("G")) return kFar;
  if (key.Is("g")) return -kFar;
  switch (key.kind) {
    case Kind::kDown:
      return 1;
    case Kind::kUp:
      return -1;
    case Kind::kPageDown:
      return page;
    case Kind::kPageUp:
      return -page;
    case Kind::kEnd:
      return kFar;
    case Kind::kHome:
      return -kFar;
    default:
      return 0;
  }
}

void MoveInCluster(TopState& state, const TopData& data, int by) {
  if (state.part == TopState::Part::kNodes) {
    int lines = 0;
    for (const auto& node : data.nodes) lines += std::max(1, node.devices_size());
    state.node_row = std::clamp(state.node_row + by, 0, std::max(0, lines - 1));
    return;
  }
  const auto shown = ShownJobs(state, data);
  if (shown.empty()) return;
  const int row = static_cast<int>(ChosenRow(state, shown)) + by;
  state.chosen_job = shown[static_cast<size_t>(std::clamp(row, 0, static_cast<int>(shown.size()) - 1))]->id();
}

void Open(TopState& state, uint64_t job) {
  state.view = TopState::View::kJob;
  state.open_job = job;
  state.chosen_job = job;
  state.lines_back = 0;
  state.log_filter.clear();
}

void EndNumber(TopState& state) {
  uint64_t number = 0;
  std::from_chars(state.typed.data(), state.typed.data() + state.typed.size(), number);
  if (number > 0) Open(state, number);
}

/// The filter works while it is typed.
void ApplyFilter(TopState& state) {
  (state.view == TopState::View::kJob ? state.log_filter : state.filter) = state.typed;
  state.lines_back = 0;
}

void AskCancel(TopState& state, const TopData& data) {
  const auto* job = JobAtHand(state, data);
  if (job == nullptr || IsFinal(job->state())) return;
  state.prompt = Prompt::kCancel;
  state.asked_job = job->id();
  state.asked_title = JobTitle(*job);
}

TopAct AnswerCancel(TopState& state, const Key& key) {
  state.prompt = Prompt::kNone;
  if (!key.Is("y") && !key.Is("s")) return {};
  return {.kind = TopAct::Kind::kCancel, .job = state.asked_job, .checkpoint = key.Is("s")};
}

TopAct OnPromptKey(TopState& state, const Key& key) {
  if (state.prompt == Prompt::kCancel) return AnswerCancel(state, key);
  const bool number = state.prompt == Prompt::kNumber;
  if (key.kind == Kind::kEnter) {
    if (number) EndNumber(state);
    state.prompt = Prompt::kNone;
    return {};
  }
  if (key.kind == Kind::kEscape || (key.kind == Kind::kErase && state.typed.empty())) {
    state.typed.clear();
    if (!number) ApplyFilter(state);
    state.prompt = Prompt::kNone;
    return {};
  }
  if (key.kind == Kind::kErase) EraseCharacter(state.typed);
  if (key.kind == Kind::kText) {
    const bool digit = std::isdigit(static_cast<unsigned char>(key.text[0])) != 0;
    if (!number || (digit && state.typed.size() < kLongestNumber)) state.typed += key.text;
  }
  if (!number) ApplyFilter(state);
  return {};
}

/// q or Esc: one step back.
TopAct Leave(TopState& state, bool escape) {
  if (state.view == TopState::View::kJob) {
    if (escape && !state.log_filter.empty()) {
      state.log_filter.clear();
    } else {
      state.view = TopState::View::kCluster;
    }
    return {};
  }
  if (escape && !state.filter.empty()) {
    state.filter.clear();
    return {};
  }
  return {.kind = TopAct::Kind::kQuit};
}

void Ask(TopState& state, Prompt prompt, std::string typed = "") {
  state.prompt = prompt;
  state.typed = std::move(typed);
}

void Move(TopState& state, const TopData& data, int by) {
  if (by == 0) return;
  if (state.view == TopState::View::kCluster) return MoveInCluster(state, data, by);
  const auto lines = static_cast<int>(ShownLines(state, data).size());
  state.lines_back = std::clamp(state.lines_back - by, 0, std::max(0, lines - 1));
}

}  // namespace

std::vector<const v1::Job*> ShownJobs(const TopState& state, const TopData& data) {
  const std::string lower = LowerCase(state.filter);
  std::vector<const v1::Job*> shown;
  for (const auto& job : data.jobs) {
    if (lower.empty() || Matches(job, lower)) shown.push_back(&job);
  }
  return shown;
}

size_t ChosenRow(const TopState& state, const std::vector<const v1::Job*>& shown) {
  for (size_t i = 0; i < shown.size(); ++i) {
    if (shown[i]->id() == state.chosen_job) return i;
  }
  return 0;
}

std::vector<const v1::LogLine*> ShownLines(const TopState& state, const TopData& data) {
  std::vector<const v1::LogLine*> shown;
  if (!data.job) return shown;
  const std::string lower = LowerCase(state.log_filter);
  for (const auto& line : data.job->lines) {
    if (lower.empty() || LowerCase(line.text()).find(lower) != std::string::npos) shown.push_back(&line);
  }
  return shown;
}

const v1::Job* JobAtHand(const TopState& state, const TopData& data) {
  if (state.view == TopState::View::kJob) {
    const bool there = data.job && data.job->job.job().id() == state.open_job;
    return there ? &data.job->job.job() : nullptr;
  }
  const auto shown = ShownJobs(state, data);
  return shown.empty() ? nullptr : shown[ChosenRow(state, shown)];
}

TopAct OnKey(TopState& state, const TopData& data, const Key& key, int page) {
  if (state.help) {
    state.help = false;
    return {};
  }
  if (state.prompt != Prompt::kNone) return OnPromptKey(state, key);
  const bool cluster = state.view == TopState::View::kCluster;
  if (key.Is("q") || key.kind == Kind::kEscape) return Leave(state, key.kind == Kind::kEscape);
  if (key.Is("?") || key.Is("h")) {
    state.help = true;
  } else if (key.Is("/")) {
    Ask(state, Prompt::kFilter, cluster ? state.filter : state.log_filter);
  } else if (key.Is("c")) {
    AskCancel(state, data);
  } else if (key.kind == Kind::kText && std::isdigit(static_cast<unsigned char>(key.text[0])) != 0) {
    Ask(state, Prompt::kNumber, key.text);
  } else if (cluster && key.kind == Kind::kTab) {
    state.part = state.part == TopState::Part::kJobs ? TopState::Part::kNodes : TopState::Part::kJobs;
  } else if (cluster && key.kind == Kind::kEnter) {
    if (const auto* job = JobAtHand(state, data)) Open(state, job->id());
  } else {
    Move(state, data, MoveOf(key, page));
  }
  return {};
}

}  // namespace imgd::cli
