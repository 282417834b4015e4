#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "common/job_file_parts.h"
#include "common/times.h"

namespace imgd::job_file_parts {
namespace {

constexpr size_t kMostAfter = 100;

/// A time with its zone, or a duration.
void ReadNotBefore(YamlMap& root, JobSpec& spec) {
  const auto text = root.String("not_before");
  if (!text) return;
  if (const auto time = ParseTime(*text)) {
    spec.not_before_us = *time;
  } else if (!text->empty() && text->find_first_not_of("0123456789.msdh") == std::string::npos) {
    Set(spec.not_before_delay_ms, root.DurationMs("not_before"));
  } else {
    root.AddError("not_before",
                  fmt::format("found '{}' where a time with its zone, such as 2026-12-01T02:00:00Z or "
                              "2026-12-01T02:00:00+01:00, or a duration such as 8h is expected",
                              *text));
  }
}

using Parameter = SweepSpec::Parameter;

bool IsOwnName(const std::string& name, std::string_view key) {
  return name == key || name.starts_with(std::string(key) + ".");
}

/// What makes a member what it is can't be one of its settings.
void CheckName(YamlMap& map, const std::string& name) {
  if (name == "name") {
    map.AddError(name, "can't be swept: the jobs are named by the file's name and their number");
  }
  for (const char* key : {"sweep", "after", "not_before", "notify"}) {
    if (IsOwnName(name, key)) map.AddError(name, "can't be swept: it is of the sweep as a whole");
  }
}

std::vector<Parameter> ReadGrid(YamlMap& sweep) {
  std::vector<Parameter> out;
  auto grid = sweep.Child("grid");
  for (const auto& name : grid.Keys()) {
    CheckName(grid, name);
    if (auto values = grid.Values(name)) out.push_back({.name = name, .choice = std::move(*values)});
  }
  if (sweep.Has("grid") && grid.Keys().empty()) {
    sweep.AddError("grid", "is empty; settings with lists of values are expected, such as {seed: [1, 2]}");
  }
  grid.Finish();
  return out;
}

std::vector<std::vector<SweepValue>> ReadList(YamlMap& sweep) {
  std::vector<std::vector<SweepValue>> out;
  for (auto& item : sweep.Children("list")) {
    std::vector<SweepValue> values;
    for (const auto& name : item.Keys()) {
      CheckName(item, name);
      values.push_back({name, *item.Value(name)});
    }
    item.Finish();
    out.push_back(std::move(values));
  }
  if (sweep.Has("list") && out.empty()) sweep.AddError("list", "is empty; mappings of settings are expected");
  return out;
}

constexpr double kMostBound = 1e15;

/// `key: [low, high]`.
void ReadRange(YamlMap& map, const char* key, Parameter::Kind kind, Parameter& out) {
  const auto bounds = map.Doubles(key, -kMostBound, kMostBound);
  if (!bounds) return;
  out.kind = kind;
  const bool rising = bounds->size() == 2 && (*bounds)[0] < (*bounds)[1];
  if (!rising) {
    map.AddError(key, "two numbers are expected, the lower one first");
    return;
  }
  out.low = (*bounds)[0];
  out.high = (*bounds)[1];
  if (kind == Parameter::Kind::kLogUniform && out.low <= 0)
    map.AddError(key, "both numbers have to be above 0");
  const bool whole = std::trunc(out.low) == out.low && std::trunc(out.high) == out.high;
  if (kind == Parameter::Kind::kIntUniform && !whole) map.AddError(key, "whole numbers are expected");
}

std::vector<Parameter> ReadParameters(YamlMap& random) {
  std::vector<Parameter> out;
  auto params = random.Child("params");
  for (const auto& name : params.Keys()) {
    CheckName(params, name);
    Parameter parameter{.name = name};
    auto map = params.Child(name);
    if (auto values = map.Values("choice")) parameter.choice = std::move(*values);
    ReadRange(map, "uniform", Parameter::Kind::kUniform, parameter);
    ReadRange(map, "log_uniform", Parameter::Kind::kLogUniform, parameter);
    ReadRange(map, "int_uniform", Parameter::Kind::kIntUniform, parameter);
    if (map.Keys().size() != 1) {
      params.AddError(name, "one of choice, uniform, log_uniform and int_uniform is expected");
    }
    map.Finish();
    out.push_back(std::move(parameter));
  }
  if (params.Keys().empty()) random.AddError("params", "missing; what shall be drawn?");
  params.Finish();
  return out;
}

void ReadRandom(YamlMap& sweep, const JobSpec& spec, SweepSpec& out) {
  if (!sweep.Has("random")) return;
  auto random = sweep.Child("random");
  if (const auto n = random.Int("n", 1, static_cast<int64_t>(kMostSweepMembers))) {
    out.draws = static_cast<uint64_t>(*n);
  } else if (!random.Has("n")) {
    random.AddError("n", "missing; how many jobs shall it be?");
  }
  out.seed = spec.seed;
  if (const auto seed = random.Int("seed", 0, INT64_MAX)) out.seed = static_cast<uint64_t>(*seed);
  out.random = ReadParameters(random);
  random.Finish();
}

/// Those of `rungs`, or `first` times powers of the factor, before the end.
std::vector<int> ReadRungs(YamlMap& halving, int factor, int epochs) {
  std::vector<int> rungs;
  if (halving.Has("rungs") == halving.Has("first")) {
    halving.AddError("rungs", "either rungs, a list of epochs, or first, the first of them, is expected");
  }
  if (const auto first = halving.Int("first", 1, kMaxInt)) {
    for (int64_t rung = *first; rung < epochs; rung *= factor) rungs.push_back(static_cast<int>(rung));
    if (rungs.empty())
      halving.AddError("first",
                       fmt::format("epoch {} is not before the end, train.epochs is {}", *first, epochs));
  }
  const auto listed = halving.Doubles("rungs", 1, kMaxInt);
  if (!listed) return rungs;
  for (const double rung : *listed) {
    if (std::trunc(rung) != rung || rung >= epochs || (!rungs.empty() && rung <= rungs.back())) {
      halving.AddError("rungs",
                       fmt::format("rising whole numbers below train.epochs, {}, are expected", epochs));
      return {};
    }
    rungs.push_back(static_cast<int>(rung));
  }
  if (rungs.empty()) halving.AddError("rungs", "is empty; epochs are expected");
  return rungs;
}

/// Whether jobs of the sweep have their own value of it.
bool IsSwept(const SweepSpec& sweep, std::string_view name) {
  const auto is = [name](const auto& setting) { return setting.name == name; };
  return std::any_of(sweep.grid.begin(), sweep.grid.end(), is) ||
         std::any_of(sweep.random.begin(), sweep.random.end(), is) ||
         std::any_of(sweep.list.begin(), sweep.list.end(),
                     [is](const auto& values) { return std::any_of(values.begin(), values.end(), is); });
}

/// A job is compared at the first validation of a rung or later; at its end there is nothing left to stop.
void CheckRungs(YamlMap& halving, const JobSpec& spec, const SweepSpec& sweep,
                const std::vector<int>& rungs) {
  if (rungs.empty() || IsSwept(sweep, "train.eval_every_epochs") || IsSwept(sweep, "train.epochs")) return;
  const int every = spec.train.eval_every_epochs;
  const int64_t first = (int64_t{rungs.front()} + every - 1) / every * every;
  if (first < spec.train.epochs) return;
  halving.AddError(
      halving.Has("rungs") ? "rungs" : "first",
      fmt::format("nothing could be stopped: from epoch {} on, the end, at {}, is the first validation",
                  rungs.front(), spec.train.epochs),
      fmt::format("train.eval_every_epochs is {}; less is needed", every));
}

void ReadHalving(YamlMap& sweep, const JobSpec& spec, SweepSpec& out) {
  if (!sweep.Has("halving")) return;
  auto halving = sweep.Child("halving");
  if (spec.kind != JobKind::kTraining) {
    sweep.AddError("halving",
                   fmt::format("compares figures of training, and a {} has none", NameOf(spec.kind)));
    return;
  }
  HalvingSpec& into = out.halving.emplace();
  Set(into.metric, halving.Choice("metric", {"top1", "top5", "loss"}));
  Set(into.factor, halving.Int("factor", 2, 1000));
  into.rungs = ReadRungs(halving, into.factor, spec.train.epochs);
  CheckRungs(halving, spec, out, into.rungs);
  if (spec.data.val.empty()) sweep.AddError("halving", "needs validation; set data.val");
  halving.Finish();
}

}  // namespace

void ReadWaits(YamlMap& root, JobSpec& spec) {
  ReadNotBefore(root, spec);
  if (const size_t count = root.ItemsOf("after"); count > kMostAfter) {
    root.AddError("after", fmt::format("found {} jobs; at most {} are allowed", count, kMostAfter));
    return;
  }
  for (auto& item : root.Children("after", "job")) {
    JobSpec::After after;
    Set(after.job, item.String("job"));
    Set(after.when, item.Choice("when", {"ok", "any", "failed"}));
    if (after.job.empty()) item.AddError("job", "missing; the number or the name of a job is expected");
    item.Finish();
    spec.after.push_back(std::move(after));
  }
}

void ReadSweep(YamlMap& root, JobSpec& spec) {
  if (!root.Has("sweep")) {
    root.Child("sweep");
    return;
  }
  auto sweep = root.Child("sweep");
  SweepSpec out;
  out.grid = ReadGrid(sweep);
  out.list = ReadList(sweep);
  ReadRandom(sweep, spec, out);
  Set(out.max_running, sweep.Int("max_running", 1, static_cast<int64_t>(kMostSweepMembers)));
  ReadHalving(sweep, spec, out);
  const int kinds = (sweep.Has("grid") ? 1 : 0) + (sweep.Has("list") ? 1 : 0) + (sweep.Has("random") ? 1 : 0);
  if (kinds != 1) {
    root.AddError("sweep", "one of grid, list and random is expected");
  } else if (out.Members() > kMostSweepMembers) {
    root.AddError("sweep", fmt::format("makes more than the {} jobs that are allowed", kMostSweepMembers));
  }
  sweep.Finish();
  spec.sweep = std::move(out);
}

}  // namespace imgd::job_file_parts
