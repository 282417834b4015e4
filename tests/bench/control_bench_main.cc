// The load of `./run bench control`: agents, submits and starts on a daemon that runs, and jobs in the store
// of one that does not.
#include <CLI/CLI.hpp>
#include <iostream>

#include "common/files.h"
#include "common/grpc_locks.h"
#include "common/text.h"
#include "tests/bench/control_load.h"

namespace {

/// Nothing where no file is named.
imgd::Status ReadInto(std::string& text, const std::string& file) {
  if (file.empty()) return {};
  IMGD_ASSIGN(text, imgd::ReadFile(file));
  return {};
}

int Report(const imgd::Status& status) {
  if (status) return 0;
  std::cerr << "control_bench: " << status.error().ToString() << "\n";
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  imgd::LockWithoutDeadlockSearch();
  CLI::App app("control_bench: load for imgd");
  app.require_subcommand(1);
  std::string ca;
  std::string token;
  app.add_option("--ca", ca, "file of the daemon's CA")->envname("IMGD_CA");
  app.add_option("--token-file", token, "file of an admin's token")->envname("IMGD_TOKEN_FILE");
  imgd::LoadTarget target;
  imgd::AgentLoad agents;
  auto* run_agents = app.add_subcommand("agents", "simulated agents");
  run_agents->add_option("server", target.address, "HOST:PORT")->required();
  run_agents->add_option("count", agents.agents, "how many")->required()->check(CLI::PositiveNumber);
  run_agents->add_option("seconds", agents.seconds, "how long it is measured")->required();
  run_agents->add_option("pid", agents.daemon_pid, "the daemon")->required();
  run_agents->add_flag("--hold", agents.hold, "be there until the standard input ends; nothing is measured");

  imgd::SubmitLoad submits;
  std::string job;
  auto* run_submits = app.add_subcommand("submits", "clients that submit");
  run_submits->add_option("server", target.address, "HOST:PORT")->required();
  run_submits->add_option("clients", submits.clients, "how many")->required()->check(CLI::PositiveNumber);
  run_submits->add_option("seconds", submits.seconds, "for how long")->required();
  run_submits->add_option("job", job, "job file")->required();
  run_submits->add_option("acknowledged", submits.acknowledged, "file for what was acknowledged")->required();

  run_submits->add_option("--per-second", submits.per_second, "of all clients; else as fast as they can")
      ->check(CLI::PositiveNumber);

  imgd::StartLoad starts;
  auto* run_starts = app.add_subcommand("starts", "one job after the other");
  run_starts->add_option("server", target.address, "HOST:PORT")->required();
  run_starts->add_option("jobs", starts.jobs, "how many")->required();
  run_starts->add_option("job", job, "job file")->required();
  run_starts->add_option("socket", starts.socket, "mark.sock beside start_mark")->required();

  std::string state_dir;
  uint64_t jobs = 0;
  auto* fill = app.add_subcommand("fill", "jobs in the store");
  fill->add_option("state_dir", state_dir, "the daemon's")->required();
  fill->add_option("jobs", jobs, "how many")->required();
  CLI11_PARSE(app, argc, argv);

  std::string yaml;
  if (const auto read = ReadInto(yaml, job); !read) return Report(read);
  if (const auto read = ReadInto(target.ca, ca); !read) return Report(read);
  if (const auto read = ReadInto(target.token, token); !read) return Report(read);
  target.token = imgd::Trimmed(target.token, " \n");
  agents.target = submits.target = starts.target = target;
  submits.job_yaml = starts.job_yaml = yaml;
  if (*run_agents) return Report(imgd::RunAgents(agents));
  if (*run_submits) return Report(imgd::RunSubmits(submits));
  if (*run_starts) return Report(imgd::RunStarts(starts));
  return Report(imgd::FillStore(state_dir, jobs));
}
