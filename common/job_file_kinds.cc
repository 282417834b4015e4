// What a job file says of a job that is no training: a program, or the conversion of a data set.
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "common/dataset_ref.h"
#include "common/job_file_parts.h"
#include "common/url.h"
#include "common/variables.h"

namespace imgd::job_file_parts {
namespace {

constexpr std::array<const char*, 16> kOnlyOfTraining = {
    "seed", "model",    "data", "augment", "train",      "phases", "elastic", "optimizer",
    "loss", "schedule", "ema",  "guard",   "early_stop", "report", "dist",    "limits"};

/// It would end the word that it is in.
void CheckNoZero(YamlMap& map, const char* key, const std::string& text) {
  if (text.find('\0') != std::string::npos) map.AddError(key, "has a zero byte, which no argument can have");
}

void ReadRun(YamlMap& map, JobSpec::Command& out) {
  if (map.IsList("run")) {
    Set(out.run, map.StringList("run"));
  } else if (auto text = map.String("run"); text && !text->empty()) {
    out.run = {"/bin/sh", "-c", std::move(*text)};
  }
  for (const auto& word : out.run) CheckNoZero(map, "run", word);
  if (out.run.empty() || out.run.front().empty()) {
    map.AddError("run",
                 "missing; a list, the program and its arguments, or a text for /bin/sh is expected, such as "
                 "[torchrun, train.py]");
  }
}

void ReadEnvironment(YamlMap& map, JobSpec::Command& out) {
  auto env = map.Child("env");
  for (const auto& name : env.Keys()) {
    const auto value = env.String(name);
    if (!IsVariableName(name)) {
      env.AddError(name, "is no name of a variable: letters, digits and '_' are allowed");
    } else if (IsOurVariable(name)) {
      env.AddError(name, "is set by imgd, which says by it who a process is");
    } else if (value) {
      CheckNoZero(env, name.c_str(), *value);
      out.env[name] = *value;
    }
  }
  env.Finish();
}

void ReadCommand(YamlMap& root, JobSpec& spec) {
  spec.kind = JobKind::kCommand;
  auto map = root.Child("command");
  ReadRun(map, spec.command);
  spec.command.per_node = map.Choice("per", {"rank", "node"}) == "node";
  ReadEnvironment(map, spec.command);
  Set(spec.command.dir, map.String("dir"));
  CheckAbsolute(map, "dir", spec.command.dir);
  map.Finish();
}

/// The keys that are options of `imgcli dataset convert` by the same name, with '-' for '_'.
void ReadConvertOptions(YamlMap& map, std::vector<std::string>& out) {
  const auto add = [&out](std::string key, std::optional<std::string> value) {
    if (!value) return;
    std::replace(key.begin(), key.end(), '_', '-');
    // One word, so that a value that begins with '-' is taken for none of the options.
    out.push_back(fmt::format("--{}={}", key, *value));
  };
  const auto number = [&](const char* key, int64_t least, int64_t most) {
    if (const auto value = map.Int(key, least, most)) add(key, fmt::format("{}", *value));
  };
  const std::vector<std::string> forms = {"webdataset", "tfrecord", "recordio", "imagefolder"};
  std::vector<std::string> sources = {"auto", "ilsvrc2012"};
  sources.insert(sources.end(), forms.begin(), forms.end());
  add("from", map.Choice("from", sources));
  add("to", map.Choice("to", forms));
  add("index", map.Choice("index", {"none", "plain", "restart"}));
  for (const char* key : {"name", "shard_size", "devkit"}) add(key, map.String(key));
  if (map.IsList("classes")) {
    if (const auto classes = map.StringList("classes"))
      add("classes", fmt::format("{}", fmt::join(*classes, ",")));
  } else {
    add("classes", map.String("classes"));
  }
  for (const auto& file : map.StringList("boxes").value_or(std::vector<std::string>())) add("boxes", file);
  number("shards", 1, 1'000'000);
  number("seed", 0, INT64_MAX);
  number("jobs", 1, 1024);
  number("resize", 1, 65'500);
  number("quality", 1, 100);
  number("label_offset", 0, 1);
  if (map.Bool("repair") == false) out.emplace_back("--no-repair");
  if (map.Bool("strict") == true) out.emplace_back("--strict");
}

/// What gets a name is read back before others train on it, unless the file says otherwise.
void ReadVerify(YamlMap& map, JobSpec::Convert& convert) {
  if (map.Bool("verify").value_or(!convert.registers.empty())) convert.options.emplace_back("--verify");
}

void ReadConvert(YamlMap& root, JobSpec& spec) {
  spec.kind = JobKind::kConversion;
  auto& convert = spec.convert;
  auto map = root.Child("convert");
  Set(convert.source, map.String("source"));
  Set(convert.target, map.String("target"));
  if (convert.source.empty())
    map.AddError("source", "missing; the data set that is converted: a path or a URL");
  if (convert.target.empty()) map.AddError("target", "missing; the new folder, which the nodes share");
  if (!IsUrl(convert.source)) CheckAbsolute(map, "source", convert.source);
  CheckAbsolute(map, "target", convert.target);
  ReadConvertOptions(map, convert.options);
  for (const auto& word : convert.options) CheckNoZero(map, "source", word);
  Set(convert.registers, map.String("register"));
  if (map.Has("register") && !IsDatasetName(convert.registers)) {
    map.AddError("register",
                 fmt::format("found '{}'; a name of {} is expected", convert.registers, kDatasetNameRule));
  }
  ReadVerify(map, convert);
  if (!convert.registers.empty() && root.Has("sweep"))
    map.AddError("register", "one name can't be for all jobs of a sweep", "leave it out");
  map.Finish();
  if (spec.WorldSize() != 1) {
    root.AddError("resources",
                  fmt::format("a conversion is one process; found up to {} ranks", spec.WorldSize()),
                  "leave nodes, ranks_per_node and gpu.count out, or set them to 1");
  }
}

}  // namespace

void ReadKind(YamlMap& root, JobSpec& spec) {
  if (root.Has("command")) ReadCommand(root, spec);
  if (root.Has("convert")) ReadConvert(root, spec);
  if (root.Has("command") && root.Has("convert")) {
    root.AddError("convert", "a job is either a command or a conversion",
                  "make two jobs, and put one after the other");
  }
  root.Value("command");
  root.Value("convert");
  if (spec.kind == JobKind::kTraining) return;
  for (const char* key : kOnlyOfTraining) {
    root.Value(key);
    if (!root.Has(key)) continue;
    root.AddError(
        key, fmt::format("is of training, and this job is a {}", NameOf(spec.kind)),
        std::string_view(key) == "schedule"
            ? kScheduleIsNoTime
            : "name, project, priority, resources, time_limit, grace, max_restarts, preemptible, after, "
              "not_before, secrets, notify, sweep, about and checkpoint.dir are allowed beside it");
  }
}

}  // namespace imgd::job_file_parts
