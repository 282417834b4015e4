// Lives of a simulated cluster, by seeds, and replays of traces: `./run sim`. See README.md.
#include <signal.h>
#include <sys/time.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <cstring>

#include "tests/sim/replay.h"
#include "tests/sim/world.h"

namespace imgd::sim {
namespace {

struct Options {
  uint64_t first = 1;
  uint64_t seeds = 2000;
  uint32_t nodes = 0;
  bool trace = false;
  bool every_commit = false;
  std::string replay;
  uint32_t generate = 0;
  double load = 0.95;
};

char crash_text[64];  // of the seed that lives now, ready for a signal's handler

void OnCrash(int) {
  const ssize_t written = ::write(STDERR_FILENO, crash_text, strnlen(crash_text, sizeof crash_text));
  ::_exit(written > 0 ? 3 : 4);
}

/// A small life takes some 30 ms.
constexpr time_t kMostSeconds = 120;

void OnTimeout(int) {
  // What is written before is "seed N crashes".
  const char* const text = std::strstr(crash_text, "crashes");
  if (text != nullptr) std::memcpy(crash_text + (text - crash_text), "never ends\n", sizeof "never ends\n");
  OnCrash(0);
}

/// A life whose daemon computes for ever in one event ends the program; of processor time, since others may
/// need it too.
void LimitLife(bool small) {
  const itimerval limit{.it_value = {.tv_sec = small ? kMostSeconds : 0}};
  ::setitimer(ITIMER_PROF, &limit, nullptr);
}

int LiveAll(const Options& options) {
  for (const int signal : {SIGSEGV, SIGABRT, SIGFPE}) ::signal(signal, OnCrash);
  ::signal(SIGPROF, OnTimeout);
  const auto begun = std::chrono::steady_clock::now();
  Duration simulated{};
  uint64_t events = 0;
  uint64_t commits = 0;
  uint64_t jobs = 0;
  for (uint64_t seed = options.first; seed < options.first + options.seeds; ++seed) {
    std::snprintf(crash_text, sizeof crash_text, "seed %lu crashes\n", seed);
    LimitLife(options.nodes == 0);
    World world(seed, options.nodes > 0 ? LargeShape(options.nodes) : ShapeOf(seed), options.trace);
    world.ledger.every_commit = options.every_commit;
    const auto& findings = world.Live();
    simulated += world.time.passed();
    events += world.time.count();
    commits += world.ledger.checks;
    jobs += world.truths.size();
    if (findings.empty()) continue;
    std::printf("seed %lu breaks \"%s\": %s\n", seed, findings.front().rule.c_str(),
                findings.front().text.c_str());
    std::printf("replay: ./run sim --seed %lu%s%s --trace\n", seed,
                options.nodes > 0 ? fmt::format(" --nodes {}", options.nodes).c_str() : "",
                options.every_commit ? " --every-commit" : "");
    return 1;
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begun;
  const double lived = std::chrono::duration<double>(simulated).count();
  std::printf(
      "%lu seeds, no rule broken: %lu jobs, %lu events, %lu commits, %.1f simulated days in %.1f s, %.0f "
      "times real "
      "time\n",
      options.seeds, jobs, events, commits, lived / 86400, took.count(), lived / took.count());
  return 0;
}

int ReplayFile(const std::string& path) {
  const auto trace = ReadSwf(path);
  if (!trace) {
    std::fprintf(stderr, "sim: %s\n", trace.error().message.c_str());
    return 2;
  }
  const uint32_t nodes = trace->nodes > 0 ? trace->nodes : trace->processors;
  if (nodes == 0) {
    std::fprintf(stderr, "sim: %s has neither '; MaxNodes:' nor '; MaxProcs:'\n", path.c_str());
    return 2;
  }
  const Machine machine{.nodes = nodes, .devices = std::max(trace->processors / nodes, 1U)};
  const auto jobs = JobsFor(*trace, machine);
  if (jobs.empty()) {
    std::fprintf(stderr, "sim: %s has no job that the machine could hold\n", path.c_str());
    return 2;
  }
  std::printf("%s: %zu jobs (%zu left out) on %u nodes of %u devices\n\n", path.c_str(), jobs.size(),
              trace->jobs.size() - jobs.size(), machine.nodes, machine.devices);
  const auto table = TableOf({ReplayFifo(jobs, machine), ReplayEasy(jobs, machine), ReplayOurs(jobs, machine),
                              ReplayOurs(jobs, machine, Told::kProgress)},
                             machine);
  std::printf("%s", table.c_str());
  return 0;
}

}  // namespace
}  // namespace imgd::sim

int main(int argc, char** argv) {
  using namespace imgd::sim;
  Options options;
  CLI::App app("Lives of a simulated cluster around the real core, by seeds; replays of traces.");
  auto* seed = app.add_option("--seed", options.first, "the first seed; alone: only this one");
  auto* seeds = app.add_option("--seeds", options.seeds, "how many seeds")->check(CLI::PositiveNumber);
  auto* nodes = app.add_option("--nodes", options.nodes,
                               "a cluster of so many nodes for a day, in place of small ones");
  app.add_flag("--every-commit", options.every_commit,
               "let every rule look at every commit, which takes longer");
  app.add_flag("--trace", options.trace, "print each event and decision");
  app.add_option("--replay", options.replay, "schedule this trace in the Standard Workload Format");
  app.add_option("--generate", options.generate, "print a trace of so many jobs");
  app.add_option("--load", options.load,
                 "of that trace: what its jobs would use of the cluster if each began as it came")
      ->check(CLI::Range(0.01, 10.0));
  CLI11_PARSE(app, argc, argv);
  if (!options.replay.empty()) return ReplayFile(options.replay);
  if (options.generate > 0) {
    std::fputs(GenerateSwf(options.first, options.generate, options.load).c_str(), stdout);
    return 0;
  }
  if (seeds->count() == 0 && (seed->count() > 0 || nodes->count() > 0)) options.seeds = 1;
  return LiveAll(options);
}
