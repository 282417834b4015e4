#include <sys/stat.h>

#include <filesystem>
#include <memory>

#include "cli/commands.h"
#include "cli/doctor_checks.h"
#include "cli/node_text.h"
#include "common/url.h"
#include "common/version.h"

namespace imgd::cli {
namespace {

constexpr std::chrono::milliseconds kReachPatience{3'000};

struct DoctorOptions {
  std::string format = "text";
};

ClientFacts::Node FactsOf(const v1::Node& node) {
  ClientFacts::Node facts{.name = node.name(),
                          .agent_version = node.agent_version(),
                          .state = NodeStateText(node),
                          .is_reached = node.state() == v1::NODE_STATE_READY && !node.disconnected(),
                          .devices = node.devices_size()};
  for (const auto& problem : node.problems()) {
    facts.problems += (facts.problems.empty() ? "" : ", and ") + problem.text();
    facts.clock_is_off = facts.clock_is_off || problem.kind() == v1::PROBLEM_KIND_CLOCK;
  }
  return facts;
}

void AskDaemon(Context& context, ClientFacts& facts) {
  const auto client = context.client();
  if (!client) {
    facts.address_error = client.error().front().ToString();
    return;
  }
  facts.imgd = doctor::TryToReach((*client)->address().target, kReachPatience);
  const ServerAddress& address = (*client)->address();
  facts.address_source = address.source;
  facts.tls = address.tls;
  facts.has_token = !address.token.empty();
  facts.is_loopback = IsLoopbackHost(address.target.substr(0, address.target.rfind(':')));
  if (auto why = (*client)->WhyNoTls()) facts.tls_error = why->ToString();
  const auto answer = (*client)->ListNodes();
  facts.clock.ahead = (*client)->ahead();
  if (!answer) {
    facts.answer_error = answer.error().front().ToString();
    return;
  }
  facts.warning = answer->warning();
  for (const auto& node : answer->nodes()) facts.nodes.push_back(FactsOf(node));
}

void LookAtHome(const Environment& env, ClientFacts& facts) {
  const auto path = UserConfigPath(env);
  struct stat found {};
  if (!path.empty() && ::stat(path.c_str(), &found) == 0) {
    facts.config_path = path;
    facts.config_is_open = (found.st_mode & (S_IWGRP | S_IWOTH)) != 0;
  }
  facts.clock.is_kept = doctor::IsClockKept();
}

int RunDoctor(Context& context, const DoctorOptions& options) {
  ClientFacts facts{.version = kVersion};
  LookAtHome(context.env(), facts);
  AskDaemon(context, facts);
  const auto lines = ExamineClient(facts);
  const auto report = doctor::Report(lines, options.format);
  if (!report) return context.Fail({report.error()});
  context.out() << *report;
  return doctor::ExitCodeOf(lines);
}

}  // namespace

void AddDoctorCommand(Command app, Context& context) {
  auto options = std::make_shared<DoctorOptions>();
  Command command = app.AddSubcommand(
      "doctor", "Say what is wrong with imgd as it is seen from here, and what to do about it");
  command.AddOption("-o,--output", options->format, "text or json (default text)")
      .ValueName("FORMAT")
      .OneOf({"text", "json"});
  command.Footer(
      "Ends with 6 where something keeps jobs from running, else with 0. What is wrong with a node\n"
      "itself, imgagent doctor says on that node.\n"
      "\n"
      "Examples:\n"
      "  imgcli doctor\n"
      "  imgcli --server gpu-head:7650 doctor -o json");
  command.Runs([&context, options] { return RunDoctor(context, *options); });
}

}  // namespace imgd::cli
