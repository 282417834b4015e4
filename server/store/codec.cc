#include "server/store/codec.h"

#include <nlohmann/json.hpp>

namespace imgd {
namespace {

using nlohmann::json;

json ToJson(const Part& part) {
  return {{"node", part.node.name()},    {"first_rank", part.first_rank},
          {"devices", part.devices},     {"ranks", part.ranks},
          {"whole", part.whole},         {"phase", static_cast<int>(part.phase)},
          {"contacted", part.contacted}, {"lost", part.lost}};
}

Part PartFrom(const json& value) {
  return {.node = NodeId(value.at("node").get<std::string>()),
          .first_rank = value.at("first_rank").get<uint32_t>(),
          .devices = value.at("devices").get<std::vector<uint32_t>>(),
          .ranks = value.value("ranks", 0U),
          .whole = value.value("whole", false),
          .phase = static_cast<RunPhase>(value.at("phase").get<int>()),
          .contacted = value.at("contacted").get<bool>(),
          .lost = value.at("lost").get<bool>()};
}

json ToJson(const std::optional<LogMatch>& match) {
  if (!match) return nullptr;
  return {{"pattern", match->pattern},
          {"label", match->label},
          {"line", match->line},
          {"action", static_cast<int>(match->action)},
          {"collective", match->collective},
          {"place", match->place}};
}

/// Of what holds it; nothing in what an older daemon wrote.
std::optional<LogMatch> MatchIn(const json& holder) {
  const auto value = holder.find("match");
  if (value == holder.end() || value->is_null()) return std::nullopt;
  return LogMatch{.pattern = value->at("pattern").get<std::string>(),
                  .label = value->at("label").get<std::string>(),
                  .line = value->at("line").get<std::string>(),
                  .action = static_cast<PatternAction>(value->at("action").get<int>()),
                  .collective = value->at("collective").get<bool>(),
                  .place = value->value("place", 0U)};
}

json ToJson(const RankExit& exit) {
  return {{"rank", exit.rank},
          {"exit_code", exit.exit_code},
          {"signal", exit.signal},
          {"last_error_line", exit.last_error_line},
          {"pid", exit.pid},
          {"by_us", exit.by_us},
          {"where", exit.where},
          {"last_line", exit.last_line},
          {"match", ToJson(exit.match)},
          {"told", exit.told}};
}

RankExit ExitFrom(const json& value) {
  return {.rank = value.at("rank").get<uint32_t>(),
          .exit_code = value.at("exit_code").get<int>(),
          .signal = value.at("signal").get<int>(),
          .last_error_line = value.at("last_error_line").get<std::string>(),
          .pid = value.at("pid").get<int64_t>(),
          .by_us = value.at("by_us").get<bool>(),
          .where = value.value("where", ""),
          .last_line = value.value("last_line", ""),
          .match = MatchIn(value),
          .told = value.value("told", false)};
}

json ToJson(const RankFailure& failure) {
  return {{"rank", failure.rank},
          {"message", failure.message},
          {"bad_input", failure.bad_input},
          {"collective_broken", failure.collective_broken},
          {"match", ToJson(failure.match)}};
}

RankFailure FailureFrom(const json& value) {
  return {.rank = value.at("rank").get<uint32_t>(),
          .message = value.at("message").get<std::string>(),
          .bad_input = value.at("bad_input").get<bool>(),
          .collective_broken = value.at("collective_broken").get<bool>(),
          .match = MatchIn(value)};
}

json ToJson(const Trouble& trouble) {
  return {{"code", static_cast<int>(trouble.code)}, {"text", trouble.text}, {"node", trouble.node.name()}};
}

Trouble TroubleFrom(const json& value) {
  return {static_cast<ReasonCode>(value.at("code").get<int>()), value.at("text").get<std::string>(),
          NodeId(value.value("node", ""))};
}

template <typename T>
json List(const std::vector<T>& items) {
  json out = json::array();
  for (const auto& item : items) out.push_back(ToJson(item));
  return out;
}

template <typename T, typename From>
std::vector<T> ListFrom(const json& value, From from) {
  std::vector<T> out;
  for (const auto& item : value) out.push_back(from(item));
  return out;
}

/// Text from outside (a log line) may be no UTF-8, which JSON needs.
std::string Dump(const json& value) { return value.dump(-1, ' ', false, json::error_handler_t::replace); }

template <typename Work>
auto Decode(Work work) -> Result<decltype(work())> {
  try {
    return work();
  } catch (const json::exception& exception) {
    return Fail(ErrorCode::kDataLoss, "state.db holds malformed JSON: {}", exception.what());
  }
}

}  // namespace

std::string EncodeRun(const Run& run) {
  std::vector<std::string> avoided;
  for (const auto& node : run.avoided) avoided.push_back(node.name());
  return Dump({{"parts", List(run.parts)},
               {"master_address", run.master_address},
               {"master_port", run.master_port},
               {"started", run.started},
               {"finished", run.finished},
               {"exits", List(run.exits)},
               {"failures", List(run.failures)},
               {"troubles", List(run.troubles)},
               {"stop", static_cast<int>(run.stop)},
               {"checkpoint_first", run.checkpoint_first},
               {"stop_actor", run.stop_actor},
               {"stop_text", run.stop_text},
               {"saved", run.saved},
               {"progressed", run.progressed},
               {"charged_ms", run.charged_ms},
               {"charged_us", run.charged.micros},
               {"grows_to", List(run.grows_to)},
               {"avoided", avoided}});
}

Result<Run> DecodeRun(const std::string& text) {
  return Decode([&text] {
    const json value = json::parse(text);
    std::set<NodeId> avoided;
    for (const auto& node : value.value("avoided", std::vector<std::string>())) avoided.insert(NodeId(node));
    return Run{.parts = ListFrom<Part>(value.at("parts"), PartFrom),
               .master_address = value.at("master_address").get<std::string>(),
               .master_port = value.at("master_port").get<uint32_t>(),
               .started = value.at("started").get<decltype(Run::started)>(),
               .finished = value.at("finished").get<bool>(),
               .exits = ListFrom<RankExit>(value.at("exits"), ExitFrom),
               .failures = ListFrom<RankFailure>(value.at("failures"), FailureFrom),
               .troubles = ListFrom<Trouble>(value.at("troubles"), TroubleFrom),
               .stop = static_cast<StopFor>(value.at("stop").get<int>()),
               .checkpoint_first = value.at("checkpoint_first").get<bool>(),
               .stop_actor = value.at("stop_actor").get<std::string>(),
               .stop_text = value.value("stop_text", ""),
               .saved = value.value("saved", false),
               .progressed = value.at("progressed").get<bool>(),
               .grows_to = ListFrom<Part>(value.value("grows_to", json::array()), PartFrom),
               .avoided = std::move(avoided),
               .charged_ms = value.value("charged_ms", int64_t{0}),
               .charged = {value.value("charged_us", int64_t{0})}};
  });
}

std::string EncodeDevices(const std::vector<Device>& devices) {
  json out = json::array();
  for (const auto& device : devices) {
    out.push_back({{"index", device.index},
                   {"model", device.model},
                   {"uuid", device.uuid},
                   {"memory_bytes", device.memory_bytes}});
  }
  return Dump(out);
}

Result<std::vector<Device>> DecodeDevices(const std::string& text) {
  return Decode([&text] {
    return ListFrom<Device>(json::parse(text), [](const json& value) {
      return Device{.index = value.at("index").get<uint32_t>(),
                    .model = value.at("model").get<std::string>(),
                    .uuid = value.at("uuid").get<std::string>(),
                    .memory_bytes = value.at("memory_bytes").get<uint64_t>()};
    });
  });
}

std::string EncodeFolders(const std::vector<SharedFolder>& folders) {
  json out = json::array();
  for (const auto& folder : folders) out.push_back({{"path", folder.path}, {"id", folder.id}});
  return Dump(out);
}

Result<std::vector<SharedFolder>> DecodeFolders(const std::string& text) {
  return Decode([&text] {
    return ListFrom<SharedFolder>(json::parse(text), [](const json& value) {
      return SharedFolder{value.at("path").get<std::string>(), value.at("id").get<std::string>()};
    });
  });
}

std::string EncodeLabels(const Labels& labels) { return Dump(json(labels)); }

Result<Labels> DecodeLabels(const std::string& text) {
  return Decode([&text] { return json::parse(text).get<Labels>(); });
}

std::string EncodeNeeds(const Needs& needs) {
  if (needs == Needs()) return "{}";
  return Dump({{"gpu", needs.gpu},
               {"cpu", needs.cpu},
               {"models", needs.models},
               {"memory_bytes", needs.memory_bytes},
               {"whole_nodes", needs.whole_nodes},
               {"labels", needs.labels},
               {"not_labels", needs.not_labels}});
}

Result<Needs> DecodeNeeds(const std::string& text) {
  if (text == "{}") return Needs{};
  return Decode([&text] {
    const json value = json::parse(text);
    return Needs{
        .gpu = value.at("gpu").get<bool>(),
        .cpu = value.value("cpu", false),
        .models = value.at("models").get<std::vector<std::string>>(),
        .memory_bytes = value.at("memory_bytes").get<uint64_t>(),
        .whole_nodes = value.at("whole_nodes").get<bool>(),
        .labels = value.at("labels").get<decltype(Needs::labels)>(),
        .not_labels = value.at("not_labels").get<decltype(Needs::not_labels)>(),
    };
  });
}

std::string EncodeCrashes(const Crashes& crashes) {
  if (crashes == Crashes()) return "{}";
  std::vector<std::string> nodes, sick;
  for (const auto& node : crashes.nodes) nodes.push_back(node.name());
  for (const auto& node : crashes.sick) sick.push_back(node.name());
  return Dump({{"place", crashes.place}, {"times", crashes.times}, {"nodes", nodes}, {"sick", sick}});
}

Result<Crashes> DecodeCrashes(const std::string& text) {
  if (text == "{}") return Crashes{};
  return Decode([&text] {
    const json value = json::parse(text);
    Crashes crashes{.place = value.at("place").get<std::string>(),
                    .times = value.at("times").get<uint32_t>()};
    for (const auto& node : value.at("nodes")) crashes.nodes.insert(NodeId(node.get<std::string>()));
    for (const auto& node : value.value("sick", json::array()))
      crashes.sick.insert(NodeId(node.get<std::string>()));
    return crashes;
  });
}

std::string EncodeStrikes(const std::vector<Strike>& strikes) {
  json out = json::array();
  for (const auto& strike : strikes)
    out.push_back({{"job", strike.job.value()}, {"name", strike.name}, {"told", strike.told}});
  return Dump(out);
}

Result<std::vector<Strike>> DecodeStrikes(const std::string& text) {
  return Decode([&text] {
    return ListFrom<Strike>(json::parse(text), [](const json& value) {
      return Strike{.job = JobId(value.at("job").get<uint64_t>()),
                    .name = value.at("name").get<std::string>(),
                    .told = value.value("told", false)};
    });
  });
}

std::string EncodeAfter(const std::vector<Dependency>& after) {
  json out = json::array();
  for (const auto& one : after) {
    out.push_back({{"job", one.job.value()},
                   {"name", one.name},
                   {"when", static_cast<int>(one.when)},
                   {"ended", one.ended ? static_cast<int>(*one.ended) : 0}});
  }
  return Dump(out);
}

Result<std::vector<Dependency>> DecodeAfter(const std::string& text) {
  if (text == "[]") return std::vector<Dependency>{};
  return Decode([&text] {
    return ListFrom<Dependency>(json::parse(text), [](const json& value) {
      const int ended = value.at("ended").get<int>();
      return Dependency{.job = JobId(value.at("job").get<uint64_t>()),
                        .name = value.at("name").get<std::string>(),
                        .when = static_cast<AfterEnd>(value.at("when").get<int>()),
                        .ended = ended == 0 ? std::nullopt : std::optional(static_cast<JobState>(ended))};
    });
  });
}

std::string EncodeSettings(const std::vector<SweepSetting>& settings) {
  json out = json::array();
  for (const auto& [name, value] : settings) out.push_back({name, value});
  return Dump(out);
}

Result<std::vector<SweepSetting>> DecodeSettings(const std::string& text) {
  if (text == "[]") return std::vector<SweepSetting>{};
  return Decode([&text] {
    return ListFrom<SweepSetting>(json::parse(text), [](const json& value) {
      return SweepSetting{value.at(0).get<std::string>(), value.at(1).get<std::string>()};
    });
  });
}

std::string EncodeHalving(const std::optional<Halving>& halving) {
  if (!halving) return "";
  return Dump({{"metric", static_cast<int>(halving->metric)},
               {"max", halving->max},
               {"factor", halving->factor},
               {"rungs", halving->rungs}});
}

Result<std::optional<Halving>> DecodeHalving(const std::string& text) {
  if (text.empty()) return std::optional<Halving>{};
  return Decode([&text] {
    const json value = json::parse(text);
    return std::optional(Halving{.metric = static_cast<SweepMetric>(value.at("metric").get<int>()),
                                 .max = value.at("max").get<bool>(),
                                 .factor = value.at("factor").get<uint32_t>(),
                                 .rungs = value.at("rungs").get<std::vector<uint32_t>>()});
  });
}

std::string EncodeTexts(const std::vector<std::string>& texts) { return Dump(json(texts)); }

Result<std::vector<std::string>> DecodeTexts(const std::string& text) {
  return Decode([&text] { return json::parse(text).get<std::vector<std::string>>(); });
}

}  // namespace imgd
