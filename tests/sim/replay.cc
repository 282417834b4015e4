#include "tests/sim/replay.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <queue>

#include "server/core/forecast.h"
#include "server/core/reactor.h"

namespace imgd::sim {
namespace {

constexpr Instant kBegin{std::chrono::hours(1)};

Now NowAt(double seconds) {
  const auto passed = std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
  return {kBegin + passed, WallTime{1'000'000'000'000'000 + passed.count() * 1000}};
}

double SecondsOf(Instant at) { return std::chrono::duration<double>(at - kBegin).count(); }

/// Drives the core through a trace.
class OursReplay {
 public:
  OursReplay(const std::vector<SwfJob>& jobs, Machine machine, Told told);
  Replay Run();

 private:
  using End = std::pair<double, JobId>;
  void Join(Machine machine);
  void Submit(Outcome& outcome);
  void Forecast(JobId id);
  void Finish(JobId job);
  void Settle(Actions actions);
  void Obey(const SendPrepare& prepare, Actions& out);
  void Obey(const SendStart& start, Actions& out);
  template <typename Other>
  void Obey(const Other&, Actions&) {}
  Outcome& OutcomeOf(JobId job) { return replay_.outcomes[job.value() - 1]; }

  Reactor reactor_{CoreSettings{}, "cafe0123"};
  Told told_;
  double now_ = 0;
  Replay replay_;
  std::priority_queue<End, std::vector<End>, std::greater<>> ends_;
};

OursReplay::OursReplay(const std::vector<SwfJob>& jobs, Machine machine, Told told) : told_(told) {
  replay_.policy = told == Told::kNothing ? "imgd" : "imgd, told of progress";
  reactor_.Restore({}, {}, JobId(1), NowAt(0));
  for (const auto& job : jobs) replay_.outcomes.push_back(GangOf(job, machine));
  Join(machine);
}

void OursReplay::Join(Machine machine) {
  Actions actions;
  for (uint32_t i = 0; i < machine.nodes; ++i) {
    const std::string name = fmt::format("n{:05}", i);
    NodeHello hello{.node = NodeId(name), .agent_id = name, .address = name, .filesystem_id = "fs"};
    for (uint32_t device = 0; device < machine.devices; ++device) hello.devices.push_back({.index = device});
    (void)reactor_.OnAgentHello(hello, i + 1, NowAt(now_), actions);
  }
  Settle(std::move(actions));
}

Replay OursReplay::Run() {
  auto next = replay_.outcomes.begin();
  while (next != replay_.outcomes.end() || !ends_.empty()) {
    if (!ends_.empty() && (next == replay_.outcomes.end() || ends_.top().first <= next->job->submit_s)) {
      const auto [at, job] = ends_.top();
      ends_.pop();
      now_ = at;
      Finish(job);
    } else {
      now_ = next->job->submit_s;
      Submit(*next++);
    }
  }
  return std::move(replay_);
}

void OursReplay::Submit(Outcome& outcome) {
  Actions actions;
  Submission submission;
  submission.name = "job";
  submission.owner = "trace";
  submission.checkpoint_parent = "/ckpt";
  submission.nodes = outcome.nodes;
  submission.ranks_per_node = outcome.devices;
  submission.time_limit_ms = static_cast<int64_t>(std::max(outcome.job->requested_s, 0.0) * 1000);
  const JobId id = reactor_.OnSubmit(submission, NowAt(now_), actions);
  Settle(std::move(actions));
  if (outcome.start_s < 0) Forecast(id);
}

/// As `imgcli explain` and the job's page tell it.
void OursReplay::Forecast(JobId id) {
  const auto& queue = reactor_.state().queue();
  const auto place = PlaceIn(queue, reactor_.state().KeyOf(*reactor_.state().FindJob(id)));
  const auto start = ForecastStart(reactor_.MakeSnapshot(NowAt(now_)), queue, place.value());
  if (start) OutcomeOf(id).forecast_s = SecondsOf(*start);
}

void OursReplay::Settle(Actions actions) {
  while (true) {
    reactor_.Schedule(NowAt(now_), actions);
    reactor_.Commit();
    if (actions.empty()) break;
    Actions more;
    for (const auto& action : actions) {
      std::visit([&](const auto& known) { Obey(known, more); }, action);
    }
    actions = std::move(more);
  }
  for (const auto& reserved : reactor_.reserved()) {
    if (!reserved.from) continue;
    Outcome& outcome = OutcomeOf(reserved.job);
    if (!outcome.promised_s) outcome.promised_s = SecondsOf(*reserved.from);
  }
}

void OursReplay::Obey(const SendPrepare& prepare, Actions& out) {
  Outcome& outcome = OutcomeOf(prepare.run.job);
  outcome.start_s = now_;
  ends_.emplace(now_ + outcome.job->run_s, prepare.run.job);
  reactor_.OnRunPrepared(prepare.node, prepare.run, prepare.node.name(), 29500, "", NowAt(now_), out);
}

void OursReplay::Obey(const SendStart& start, Actions& out) {
  reactor_.OnRunStatus(start.node, {.run = start.run, .phase = RunPhase::kRunning}, NowAt(now_), out);
  for (uint32_t i = 0; i < start.ranks; ++i) {
    reactor_.OnTrainerStarted(start.run, start.first_rank + i, NowAt(now_), out);
  }
  if (told_ == Told::kNothing) return;
  const auto left = std::chrono::duration<double>(OutcomeOf(start.run.job).job->run_s);
  reactor_.OnTrainerProgress(start.run, std::chrono::duration_cast<Duration>(left), NowAt(now_));
}

void OursReplay::Finish(JobId id) {
  Actions actions;
  const RunKey run{id, reactor_.state().FindJob(id)->generation};
  const auto parts = reactor_.state().FindJob(id)->run.parts;
  reactor_.OnTrainerFinished(run, 0, NowAt(now_), actions);
  for (const auto& part : parts) {
    RunReport gone{.run = run, .phase = RunPhase::kGone};
    for (uint32_t i = 0; i < part.devices.size(); ++i) gone.exits.push_back({.rank = part.first_rank + i});
    reactor_.OnRunStatus(part.node, gone, NowAt(now_), actions);
  }
  Settle(std::move(actions));
}

/// The value below which that part of them lies.
double Quantile(std::vector<double> values, double part) {
  if (values.empty()) return 0;
  const auto nth =
      values.begin() + static_cast<std::ptrdiff_t>(std::floor(part * static_cast<double>(values.size() - 1)));
  std::nth_element(values.begin(), nth, values.end());
  return *nth;
}

std::string RowOf(const Replay& replay, Machine machine) {
  // Not until the last job's end: a few of many days would run alone for most of that time.
  const double first = replay.outcomes.front().job->submit_s;
  const double last = replay.outcomes.back().job->submit_s;
  double used = 0;
  double waited = 0;
  double slowdown = 0;
  std::vector<double> waits;
  for (const auto& outcome : replay.outcomes) {
    const SwfJob& job = *outcome.job;
    const double wait = outcome.start_s - job.submit_s;
    const double end = std::min(outcome.start_s + job.run_s, last);
    used += std::max(end - outcome.start_s, 0.0) * outcome.nodes * outcome.devices;
    waited += wait;
    waits.push_back(wait);
    // Feitelson's bounded slow-down: jobs of less than 10 s count as such of 10 s.
    slowdown += std::max((wait + job.run_s) / std::max(job.run_s, 10.0), 1.0);
  }
  const auto count = static_cast<double>(replay.outcomes.size());
  const double span = std::max(last - first, 1.0);
  const auto waiting = std::count_if(waits.begin(), waits.end(), [](double wait) { return wait > 1; });
  return fmt::format("| {} | {:.1f} % | {:.0f} % | {:.0f} s | {:.0f} s | {:.1f} |\n", replay.policy,
                     100 * used / (span * machine.nodes * machine.devices),
                     100 * static_cast<double>(waiting) / count, waited / count, Quantile(waits, 0.95),
                     slowdown / count);
}

/// How far the real starts were from what had been said of them.
std::string ErrorsOf(const Replay& replay, std::string_view what, std::optional<double> Outcome::*said) {
  std::vector<double> errors;
  size_t later = 0;
  for (const auto& outcome : replay.outcomes) {
    if (!(outcome.*said)) continue;
    errors.push_back(std::abs(outcome.start_s - *(outcome.*said)));
    if (outcome.start_s > *(outcome.*said) + 1) ++later;
  }
  if (errors.empty()) return "";
  const size_t count = errors.size();
  return fmt::format("| {} | {} | {} | {:.0f} s | {:.0f} s | {} ({:.1f} %) |\n", replay.policy, what, count,
                     Quantile(errors, 0.5), Quantile(errors, 0.9), later,
                     100 * static_cast<double>(later) / static_cast<double>(count));
}

}  // namespace

Replay ReplayOurs(const std::vector<SwfJob>& jobs, Machine machine, Told told) {
  return OursReplay(jobs, machine, told).Run();
}

Outcome GangOf(const SwfJob& job, Machine machine) {
  if (job.processors <= machine.devices) return {.job = &job, .nodes = 1, .devices = job.processors};
  return {.job = &job,
          .nodes = (job.processors + machine.devices - 1) / machine.devices,
          .devices = machine.devices};
}

std::vector<SwfJob> JobsFor(const SwfTrace& trace, Machine machine) {
  std::vector<SwfJob> jobs;
  for (SwfJob job : trace.jobs) {
    if (GangOf(job, machine).nodes > machine.nodes) continue;
    // Who asked for less than it took was ended there.
    if (job.requested_s > 0) job.run_s = std::min(job.run_s, job.requested_s);
    jobs.push_back(job);
  }
  return jobs;
}

std::string TableOf(const std::vector<Replay>& replays, Machine machine) {
  std::string out =
      "| policy | utilisation | jobs that wait | mean wait | p95 wait | bounded slow-down |\n"
      "| --- | --- | --- | --- | --- | --- |\n";
  for (const auto& replay : replays) out += RowOf(replay, machine);
  out +=
      "\n| policy | predicted start | jobs | error: median | p90 | later than predicted |\n"
      "| --- | --- | --- | --- | --- | --- |\n";
  for (const auto& replay : replays) {
    out += ErrorsOf(replay, "when it is first reserved", &Outcome::promised_s);
    out += ErrorsOf(replay, "forecast when it is submitted", &Outcome::forecast_s);
  }
  return out;
}

}  // namespace imgd::sim
