#include "cli/doctor_checks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace imgd::cli {
namespace {

using doctor::Fault;
using doctor::Good;
using doctor::Unknown;
using doctor::Verdict;
using doctor::Warning;

/// The names of the nodes that `is` picks.
template <typename Is>
std::string NamesOf(const ClientFacts& facts, Is is) {
  std::vector<std::string> names;
  for (const auto& node : facts.nodes) {
    if (is(node)) names.push_back(node.name);
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

bool Answered(const ClientFacts& facts) { return facts.answer_error.empty() && facts.address_error.empty(); }

Verdict CheckAddress(const ClientFacts& facts) {
  if (facts.address_error.empty())
    return Good(fmt::format("{} ({})", facts.imgd.server, facts.address_source));
  return Fault(facts.address_error,
               "set IMGD_SERVER=HOST:PORT, or server: HOST:PORT in ~/.config/imgd/config.yaml");
}

Verdict CheckConfigFile(const ClientFacts& facts) {
  if (facts.config_path.empty()) return Good("none, and none is needed");
  if (!facts.config_is_open) return Good(facts.config_path);
  return Warning(facts.config_path + " can be changed by others", "chmod go-w " + facts.config_path);
}

Verdict CheckCertificate(const ClientFacts& facts) {
  if (!facts.tls) {
    if (facts.is_loopback) return Good("plain text, on this machine");
    return Warning("imgd is spoken to in plain text: whoever is on the way can read and change it",
                   "take http:// off its address, and imgd's plain_text_and_anyone_may_do_anything");
  }
  if (!facts.tls_error.empty())
    return Fault(facts.tls_error, "docs/operations.md, Who may talk, has each case");
  return Good("by TLS");
}

Verdict CheckToken(const ClientFacts& facts) {
  if (facts.has_token || !facts.tls) return Good(facts.has_token ? "there is one" : "none is needed");
  return Warning("there is no token for it", "imgcli login HOST:PORT, or IMGD_TOKEN_FILE");
}

Verdict CheckAnswer(const ClientFacts& facts) {
  if (!facts.address_error.empty()) return Unknown("not asked, without an address");
  if (facts.answer_error.empty()) return Good("imgd answers");
  return Fault(facts.answer_error,
               "see what is said about its name and port, and imgd's log (journalctl -u imgd)");
}

Verdict CheckDaemon(const ClientFacts& facts) {
  if (!Answered(facts)) return Unknown("did not answer");
  if (facts.warning.empty()) return Good("says nothing is wrong with it");
  return Fault(facts.warning, "see imgd's log on its machine (journalctl -u imgd)");
}

Verdict CheckThereAreNodes(const ClientFacts& facts) {
  if (!Answered(facts)) return Unknown("did not answer");
  int devices = 0;
  for (const auto& node : facts.nodes) devices += node.devices;
  if (devices > 0) return Good(fmt::format("{} nodes with {} devices", facts.nodes.size(), devices));
  return Fault("no node has joined, so that every job waits",
               "start imgagent on a machine, with server in agent.yaml; imgagent doctor there says what "
               "keeps it away");
}

Verdict CheckNodesAreReached(const ClientFacts& facts) {
  if (!Answered(facts)) return Unknown("did not answer");
  const auto away = NamesOf(facts, [](const auto& node) { return !node.is_reached; });
  if (away.empty()) return Good("all give signs of life");
  return Warning("out of reach: " + away, "on the node: systemctl status imgagent, and imgagent doctor");
}

Verdict CheckNodesAreWell(const ClientFacts& facts) {
  if (!Answered(facts)) return Unknown("did not answer");
  std::vector<std::string> sick;
  for (const auto& node : facts.nodes) {
    if (!node.problems.empty()) sick.push_back(fmt::format("{} {}", node.name, node.problems));
  }
  if (sick.empty()) return Good("none fails a health check");
  return Warning(fmt::format("{}", fmt::join(sick, "; ")),
                 "they get nothing new until that is mended; imgcli node show NODE");
}

Verdict CheckNodesAreUsed(const ClientFacts& facts) {
  if (!Answered(facts)) return Unknown("did not answer");
  const auto aside = NamesOf(facts, [](const auto& node) {
    return node.state.find("cordoned") != std::string::npos ||
           node.state.find("drain") != std::string::npos || node.state.find("set aside") != std::string::npos;
  });
  if (aside.empty()) return Good("none is set aside");
  return Warning("get nothing new, as somebody asked: " + aside,
                 "imgcli node show NODE says why; imgcli node uncordon NODE");
}

Verdict CheckNodeClocks(const ClientFacts& facts) {
  if (!Answered(facts)) return Unknown("did not answer");
  const auto off = NamesOf(facts, [](const auto& node) { return node.clock_is_off; });
  if (off.empty()) return Good("agree with imgd's");
  return Warning("differ from imgd's: " + off,
                 "run NTP (chrony, systemd-timesyncd) on them and on imgd's machine");
}

Verdict CheckNodeVersions(const ClientFacts& facts) {
  if (!Answered(facts)) return Unknown("did not answer");
  const auto other = NamesOf(facts, [&](const auto& node) { return node.agent_version != facts.version; });
  if (other.empty()) return Good("agents and imgcli are all " + facts.version);
  return Warning(fmt::format("imgcli is {}, and the agents are not on: {}", facts.version, other),
                 "imgd works with agents of one minor version before; upgrade them, or this imgcli");
}

Verdict CheckOwnClock(const ClientFacts& facts) {
  return doctor::JudgeClock(facts.clock, doctor::Grade::kWarning,
                            "what imgcli says of times, and which certificates it takes, goes by it");
}

constexpr doctor::Check<ClientFacts> kChecks[] = {
    {"address", CheckAddress},
    {"config-file", CheckConfigFile},
    {"name", [](const ClientFacts& facts) { return doctor::JudgeName(facts.imgd); }},
    {"port", [](const ClientFacts& facts) { return doctor::JudgePort(facts.imgd); }},
    {"certificate", CheckCertificate},
    {"token", CheckToken},
    {"answer", CheckAnswer},
    {"imgd", CheckDaemon},
    {"nodes", CheckThereAreNodes},
    {"nodes-reached", CheckNodesAreReached},
    {"nodes-well", CheckNodesAreWell},
    {"nodes-used", CheckNodesAreUsed},
    {"nodes-clocks", CheckNodeClocks},
    {"versions", CheckNodeVersions},
    {"clock", CheckOwnClock},
};

}  // namespace

std::vector<doctor::Line> ExamineClient(const ClientFacts& facts) { return doctor::Examine(kChecks, facts); }

}  // namespace imgd::cli
