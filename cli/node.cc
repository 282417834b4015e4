#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/commands.h"
#include "cli/device_now.h"
#include "cli/event_text.h"
#include "cli/format.h"
#include "cli/node_text.h"
#include "cli/serialize.h"
#include "cli/sheet.h"
#include "cli/words.h"
#include "common/yaml.h"

namespace imgd::cli {
namespace {

constexpr int kMostLines = 20;  ///< of runs and of events that fit a screen; wide shows all
constexpr Duration kLookAtDrain = std::chrono::milliseconds(500);

struct NodeOptions {
  std::vector<std::string> nodes;
  std::string reason;
  bool wait = false;
  OutputFormat format = OutputFormat::kTable;
};

/// The error with the nearest name beside it.
Errors WithNearest(Client& client, Errors errors, const std::string& node) {
  if (errors.empty() || errors.front().code != ErrorCode::kNotFound) return errors;
  const auto all = client.ListNodes();
  if (!all) return errors;
  std::vector<std::string> names;
  for (const auto& known : all->nodes()) names.push_back(known.name());
  const auto nearest = NearestWord(node, names);
  errors.front().hint =
      nearest ? fmt::format("did you mean '{}'?", *nearest) : "imgcli nodes shows what there is";
  return errors;
}

/// "2 jobs (12, 13)" that hold devices there; empty for none.
std::set<uint64_t> JobsOn(const v1::Node& node) {
  std::set<uint64_t> jobs;
  for (const auto& device : node.devices()) {
    if (device.job_id() != 0) jobs.insert(device.job_id());
  }
  return jobs;
}

/// "2 jobs (12, 13)"; empty for none.
std::string JobsText(const std::set<uint64_t>& jobs) {
  return jobs.empty() ? "" : fmt::format("{} ({})", Count(jobs.size(), "job"), fmt::join(jobs, ", "));
}

/// What a node that was set aside is now.
std::string AsideText(const v1::Node& node) {
  const std::string name = Printable(node.name());
  const auto ids = JobsOn(node);
  const std::string jobs = JobsText(ids);
  if (!node.set_aside().drain()) {
    return fmt::format(
        "{} is cordoned: nothing new is placed there{}", name,
        jobs.empty() ? "" : fmt::format(", and {} {} on", jobs, ids.size() == 1 ? "goes" : "go"));
  }
  if (node.set_aside().empty()) return fmt::format("{} is drained and empty: nothing runs there", name);
  if (!jobs.empty()) {
    return fmt::format(
        "{} is being drained: {} still there, to go elsewhere (trainings through a checkpoint, commands "
        "begin anew)",
        name, jobs);
  }
  return Printable(fmt::format("{} is set to be drained, but whether it is empty is not known: it {}",
                               node.name(), node.reason_text()));
}

/// Until nothing runs on the node, which is kept up to date.
int WaitUntilEmpty(Context& context, Client& client, v1::Node& node) {
  while (true) {
    auto now = client.GetNode(node.name());
    if (!now) return context.Fail(now.error());
    node = std::move(*now->mutable_node());
    if (node.set_aside().empty()) return 0;
    if (!node.has_set_aside()) {
      context.Say(fmt::format("{} is not set aside any more", Printable(node.name())), Style::kWarn);
      return ExitCodeOf(ErrorCode::kFailedPrecondition);
    }
    if (context.interrupt().WaitFor(kLookAtDrain)) return context.interrupt().ExitCode();
  }
}

/// The nodes as they are after it, and the exit code: the first failure's.
struct Asked {
  std::vector<v1::Node> nodes;
  int exit_code = 0;
};

/// The same request to each of the nodes. Goes on where one refuses. With --wait a node that is drained
/// already is no refusal: a wait that was broken off is taken up again.
template <typename Request>
Asked AskEach(Context& context, Client& client, const NodeOptions& options, Request request, auto call) {
  Asked asked;
  request.set_actor(OwnerName(context.env()));
  for (const auto& name : options.nodes) {
    request.set_name(name);
    auto answer = (client.*call)(request);
    if (answer) {
      asked.nodes.push_back(std::move(*answer->mutable_node()));
      continue;
    }
    if (options.wait && answer.error().front().code == ErrorCode::kFailedPrecondition) {
      auto now = client.GetNode(name);
      if (now && now->node().set_aside().drain()) {
        asked.nodes.push_back(std::move(*now->mutable_node()));
        continue;
      }
    }
    const int code = context.Fail(WithNearest(client, answer.error(), name));
    if (asked.exit_code == 0) asked.exit_code = code;
  }
  return asked;
}

/// One alone where one was asked for.
void PrintNodeDocument(Context& context, const NodeOptions& options, const std::vector<v1::Node>& nodes) {
  if (nodes.empty()) return;
  const auto list = ToJsonArray(nodes);
  PrintDocument(context.out(), options.nodes.size() == 1 ? list[0] : list, options.format);
}

/// Says where it is shown that the nodes are empty, to whoever does not wait for it.
void SayWhereToLook(Context& context, const std::vector<v1::Node>& nodes) {
  std::vector<std::string> filled;
  for (const auto& node : nodes) {
    if (!node.set_aside().empty()) filled.push_back(node.name());
  }
  if (filled.size() == 1) {
    context.Say(
        fmt::format("{} says when it is empty", context.Suggest(fmt::format("node show {}", filled[0]))),
        Style::kDim);
  } else if (!filled.empty()) {
    context.Say(fmt::format("{} says when they are empty", context.Suggest("nodes")), Style::kDim);
  }
}

int RunSetAside(Context& context, const NodeOptions& options, bool drain) {
  if (options.wait) context.FollowUntilInterrupted();
  auto client = context.client();
  if (!client) return context.Fail(client.error());
  v1::SetAsideNodeRequest request;
  request.set_drain(drain);
  request.set_reason(options.reason);
  auto [nodes, exit_code] = AskEach(context, **client, options, request, &Client::SetAsideNode);
  const bool document = IsDocument(options.format);
  for (const auto& node : nodes) {
    if (!document && (!options.wait || !node.set_aside().empty())) context.out() << AsideText(node) << '\n';
  }
  if (options.wait) {
    for (auto& node : nodes) {
      const int code = WaitUntilEmpty(context, **client, node);
      if (code == 0 && !document) context.out() << AsideText(node) << '\n';
      if (exit_code == 0) exit_code = code;
      if (context.interrupt().Triggered()) break;
    }
  }
  if (document) PrintNodeDocument(context, options, nodes);
  if (drain && !options.wait) SayWhereToLook(context, nodes);
  return exit_code;
}

int RunForget(Context& context, const NodeOptions& options) {
  auto client = context.client();
  if (!client) return context.Fail(client.error());
  v1::ForgetNodeRequest request;
  const std::string& node = options.nodes.front();
  request.set_name(node);
  request.set_actor(OwnerName(context.env()));
  if (auto answer = (*client)->ForgetNode(request); !answer)
    return context.Fail(WithNearest(**client, answer.error(), node));
  context.out() << Printable(fmt::format("{} is forgotten", node)) << '\n';
  return 0;
}

int RunReturn(Context& context, const NodeOptions& options, bool drained) {
  auto client = context.client();
  if (!client) return context.Fail(client.error());
  v1::ReturnNodeRequest request;
  request.set_drained(drained);
  const auto [nodes, exit_code] = AskEach(context, **client, options, request, &Client::ReturnNode);
  if (IsDocument(options.format)) {
    PrintNodeDocument(context, options, nodes);
    return exit_code;
  }
  for (const auto& node : nodes) {
    context.out() << Printable(fmt::format(
                         "{} may be used again{}", node.name(),
                         node.reason_text().empty() ? "" : fmt::format(", but it {}", node.reason_text())))
                  << '\n';
  }
  return exit_code;
}

/// All that is kept, oldest first.
Reply<std::vector<v1::Event>> EventsOfNode(Client& client, const std::string& node) {
  v1::WatchEventsRequest request;
  request.set_node(node);
  request.set_no_follow(true);
  const auto stream = client.WatchEvents(request);
  std::vector<v1::Event> events;
  v1::WatchEventsResponse response;
  using Outcome = Stream<v1::WatchEventsResponse>::Outcome;
  for (auto outcome = Outcome::kIdle; outcome != Outcome::kEnd;) {
    outcome = stream->Next(response, std::chrono::steady_clock::now() + client.timeout());
    if (outcome == Outcome::kItem) events.push_back(response.event());
    if (outcome == Outcome::kIdle) break;
  }
  if (auto ended = stream->Finish(); !ended) return tl::unexpected(std::move(ended).error());
  return events;
}

/// "jobs 3, 4 and 1 that was deleted, in a row".
std::string StruckByText(const v1::Node& node) {
  std::vector<uint64_t> jobs;
  for (const uint64_t job : node.struck_by()) {
    if (job != 0) jobs.push_back(job);
  }
  const int deleted = node.struck_by_size() - static_cast<int>(jobs.size());
  std::string text;
  if (!jobs.empty()) text = fmt::format("job{} {}", jobs.size() == 1 ? "" : "s", fmt::join(jobs, ", "));
  if (deleted > 0) {
    text += fmt::format("{}{} that {} deleted", jobs.empty() ? "" : " and ",
                        jobs.empty() ? Count(static_cast<uint64_t>(deleted), "job") : std::to_string(deleted),
                        deleted == 1 ? "was" : "were");
  }
  return text + ", in a row";
}

void PrintNodeSummary(Context& context, const v1::Node& node) {
  Sheet sheet(context);
  const int64_t now_us = NowMicros();
  context.out() << Paint(Printable(node.name()), Style::kBold, context.terminal().color) << "  "
                << Paint(NodeStateText(node), NodeStyle(node), context.terminal().color) << '\n';
  sheet.Field("reason", node.reason_text());
  if (node.has_set_aside()) {
    sheet.Field("set aside", fmt::format("{} by {}", WhenText(node.set_aside().since_us(), now_us),
                                         node.set_aside().by_imgd() ? "imgd" : node.set_aside().actor()));
    if (node.set_aside().drain())
      sheet.Field("empty", node.set_aside().empty() ? "yes: nothing runs there" : "no, or not known");
  }
  if (!node.struck_by().empty()) sheet.Field("failed here", StruckByText(node));
  std::map<std::string, int> models;
  for (const auto& device : node.devices()) ++models[device.model()];
  std::vector<std::string> devices;
  for (const auto& [model, count] : models) devices.push_back(fmt::format("{} x {}", count, model));
  sheet.Field("devices", fmt::format("{}", fmt::join(devices, ", ")));
  const auto jobs = JobsOn(node);
  for (const auto& device : node.devices()) {
    const std::string trouble = IsConnected(node) ? TroubleOf(device) : "";
    const std::string job =
        jobs.size() > 1 && device.job_id() != 0 ? fmt::format("job {}", device.job_id()) : "";
    sheet.Field(fmt::format("device {}", device.index()),
                fmt::format("{}{}{}", job, job.empty() || trouble.empty() ? "" : ", ", trouble),
                trouble.empty() ? Style::kPlain : Style::kWarn);
  }
  sheet.Field("jobs", JobsText(jobs));
  sheet.Field("address", node.address());
  sheet.Field("agent", node.agent_version());
  sheet.Field("joined", WhenText(node.joined_us(), now_us));
  sheet.Field("last heard", WhenText(node.last_heartbeat_us(), now_us));
}

void PrintRuns(Context& context, const v1::GetNodeResponse& response, bool wide) {
  if (response.runs().empty()) return;
  Sheet(context).Heading("Runs, newest first");
  Table table({{"STARTED"},
               {"TOOK", true},
               {"JOB", true},
               {.title = "NAME", .shrink = true},
               {"START", true},
               {"RANKS"},
               {.title = "ENDED", .shrink = true}});
  const int64_t now_us = NowMicros();
  int left = wide ? response.runs_size() : kMostLines;
  for (const auto& run : response.runs()) {
    if (left-- == 0) break;
    const int64_t end_us = run.ended_us() == 0 ? now_us : run.ended_us();
    const uint32_t last = run.first_rank() + run.ranks() - 1;
    table.Add(
        {Cell(LocalTime(run.started_us())),
         Cell(run.started_us() == 0 ? ""
                                    : HumanDuration(static_cast<double>(end_us - run.started_us()) / 1e6)),
         Cell(std::to_string(run.job_id())), Cell(run.job_name()), Cell(std::to_string(run.generation())),
         Cell(last == run.first_rank() ? std::to_string(last) : fmt::format("{}-{}", run.first_rank(), last)),
         Cell(run.ended_us() == 0 ? "goes on" : run.ended_text())});
  }
  table.Print(context.out(), context.terminal(), 2);
}

void PrintTimeline(Context& context, const std::vector<v1::Event>& events, bool wide) {
  if (events.empty()) return;
  Sheet(context).Heading("Timeline");
  size_t first = 0;
  if (!wide && events.size() > kMostLines) {
    first = events.size() - kMostLines;
    context.out() << fmt::format("  ({} earlier events: -o wide)\n", first);
  }
  Table table(
      {{"TIME"}, {"JOB", true}, {"WHAT"}, {.title = "BY", .shrink = true}, {.title = "WHY", .shrink = true}});
  for (size_t i = first; i < events.size(); ++i) {
    const auto& event = events[i];
    table.Add({Cell(LocalTime(event.time_us())),
               Cell(event.job_id() == 0 ? "" : std::to_string(event.job_id())),
               Cell(WordOf(event), StyleOf(event)), Cell(event.actor()), Cell(event.text())});
  }
  table.Print(context.out(), context.terminal(), 2);
}

int RunShowNode(Context& context, const NodeOptions& options) {
  auto client = context.client();
  if (!client) return context.Fail(client.error());
  const std::string& name = options.nodes.front();
  auto node = (*client)->GetNode(name);
  if (!node) return context.Fail(WithNearest(**client, node.error(), name));
  auto events = EventsOfNode(**client, name);
  if (!events) return context.Fail(events.error());
  context.Warn(node->warning());
  if (options.format == OutputFormat::kJson || options.format == OutputFormat::kYaml) {
    auto document = ToJson(*node);
    document["events"] = ToJsonArray(*events);
    PrintDocument(context.out(), document, options.format);
    return 0;
  }
  const bool wide = options.format == OutputFormat::kWide;
  PrintNodeSummary(context, node->node());
  PrintRuns(context, *node, wide);
  PrintTimeline(context, *events, wide);
  return 0;
}

/// One of the subcommands, with one NODE.
Command AddNodeCommand(Command node, const std::string& name, const std::string& help,
                       const std::shared_ptr<NodeOptions>& options, const std::string& footer) {
  Command command = node.AddSubcommand(name, help);
  options->nodes.resize(1);
  command.AddOption("NODE", options->nodes.front(), "Name of the node, as imgcli nodes shows it")
      .Required()
      .ValueName("");
  command.Footer(footer);
  return command;
}

/// With any number of them.
Command AddNodesCommand(Command node, const std::string& name, const std::string& help,
                        const std::shared_ptr<NodeOptions>& options, const std::string& footer) {
  Command command = node.AddSubcommand(name, help);
  command.AddOption("NODE", options->nodes, "Names of the nodes, as imgcli nodes shows them")
      .Required()
      .ValueName("");
  command.Footer(footer);
  return command;
}

void AddReasonOption(Command command, NodeOptions& options) {
  command.AddOption("--reason", options.reason, "Why, for those whose jobs wait for it").ValueName("TEXT");
}

}  // namespace

void AddNodeCommands(Command app, Context& context) {
  Command node = app.AddSubcommand("node", "Show one node with what ran on it, or set it aside");
  node.NeedsSubcommand();
  node.Footer("Examples:\n  imgcli node drain gpu-3 --reason 'bad fan' --wait\n  imgcli node undrain gpu-3");
  {
    auto options = std::make_shared<NodeOptions>();
    Command command = AddNodeCommand(
        node, "show", "Show a node: its state, what is wrong with its GPUs, the runs on it, its timeline",
        options, "Examples:\n  imgcli node show gpu-3 -o wide");
    AddOutputOption(command, options->format);
    command.Runs([&context, options] { return RunShowNode(context, *options); });
  }
  {
    auto options = std::make_shared<NodeOptions>();
    Command command = AddNodesCommand(
        node, "drain", "Empty nodes: nothing new is placed there, and what runs goes elsewhere", options,
        "Runs there are ended through a checkpoint and go back to the queue at once, which counts as no "
        "failure.\n"
        "It holds over restarts of imgd and of the node's agent, until imgcli node undrain.\n\n"
        "Examples:\n  imgcli node drain gpu-3 --reason 'bad fan' --wait\n  imgcli node drain gpu-3 gpu-4");
    AddReasonOption(command, *options);
    command.AddFlag("--wait", options->wait, "Wait until nothing runs there any more");
    AddOutputOption(command, options->format, kPlainFormats);
    command.Runs([&context, options] { return RunSetAside(context, *options, true); });
  }
  {
    auto options = std::make_shared<NodeOptions>();
    Command command =
        AddNodesCommand(node, "cordon", "Place nothing new on nodes; what runs there goes on", options,
                        "Examples:\n  imgcli node cordon gpu-3 --reason 'reboots at 6'");
    AddReasonOption(command, *options);
    AddOutputOption(command, options->format, kPlainFormats);
    command.Runs([&context, options] { return RunSetAside(context, *options, false); });
  }
  for (const bool drained : {true, false}) {
    auto options = std::make_shared<NodeOptions>();
    const std::string name = drained ? "undrain" : "uncordon";
    Command command =
        AddNodesCommand(node, name, fmt::format("Use {} nodes again", drained ? "drained" : "cordoned"),
                        options, fmt::format("Examples:\n  imgcli node {} gpu-3 gpu-4", name));
    AddOutputOption(command, options->format, kPlainFormats);
    command.Runs([&context, options, drained] { return RunReturn(context, *options, drained); });
  }
  {
    auto options = std::make_shared<NodeOptions>();
    Command command = AddNodeCommand(
        node, "forget", "Take a lost node out of the list", options,
        "imgd does so by itself when it has been lost for long (lost_nodes_kept_for in imgd.yaml).\n"
        "The runs that were on it stay known, and its agent may join again; imgcli node revoke shuts it "
        "out.\n\n"
        "Examples:\n  imgcli node forget spot-17");
    command.Runs([&context, options] { return RunForget(context, *options); });
  }
  AddJoinCommands(node, context);
}

}  // namespace imgd::cli
