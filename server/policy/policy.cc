#include "server/policy/policy.h"

#include <fmt/ranges.h>
#include <fnmatch.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <tuple>

#include "common/job_changes.h"
#include "server/policy/paths.h"

namespace imgd {
namespace {

enum class Unit : uint8_t { kNumber, kTime, kWords };

/// What a number may be in the life of a job.
struct Range {
  double least = 0;
  double most = 0;
};

/// A field that a policy can be about.
struct Field {
  std::string_view name;
  Unit unit;
  std::function<Range(const JobSpec&)> number;  ///< of numbers and times, which are in milliseconds
  /// Of words: its values; none where the job leaves it open and that is nobody's business.
  std::function<std::vector<std::string>(const JobSpec&)> words;
  std::optional<JobKind> only_of = {};  ///< jobs of other kinds don't have it
  bool of_sweep = false;                ///< the file of a sweep has it, and none of its jobs
  bool is_pattern = false;              ///< names of files, in which braces and wildcards count
  bool is_set = false;                  ///< addresses of data sets, which may have names
  bool is_program = false;              ///< a name may be looked for in PATH
  /// Keys by which a file may say it too.
  std::vector<std::string> other_names = {};
};

/// The file of a sweep is bounded by what is of sweeps, and each of its jobs by the rest.
bool IsOf(const Field& field, const JobSpec& job) {
  if (field.of_sweep != job.sweep.has_value()) return false;
  return !field.only_of || *field.only_of == job.kind;
}

Field Only(JobKind kind, Field field) {
  field.only_of = kind;
  return field;
}

Field OfSweep(Field field) {
  field.of_sweep = true;
  return field;
}

Field Pattern(Field field) {
  field.is_pattern = true;
  return field;
}

Field Set(Field field) {
  field.is_set = true;
  return Pattern(std::move(field));
}

Field Program(Field field) {
  field.is_program = true;
  return field;
}

Field OrAs(std::vector<std::string> other_names, Field field) {
  field.other_names = std::move(other_names);
  return field;
}

Field Span(std::string_view name, std::function<Range(const JobSpec&)> get) {
  return {name, Unit::kNumber, std::move(get), {}};
}

using GetNumber = std::function<double(const JobSpec&)>;

std::function<Range(const JobSpec&)> Alone(GetNumber get) {
  return [get = std::move(get)](const JobSpec& job) {
    const double value = get(job);
    return Range{value, value};
  };
}

Field Number(std::string_view name, GetNumber get) {
  return {name, Unit::kNumber, Alone(std::move(get)), {}};
}

Field Time(std::string_view name, GetNumber get) { return {name, Unit::kTime, Alone(std::move(get)), {}}; }

Field Words(std::string_view name, std::function<std::vector<std::string>(const JobSpec&)> get) {
  return {name, Unit::kWords, {}, std::move(get)};
}

std::vector<std::string> Given(const std::string& word) {
  return word.empty() ? std::vector<std::string>() : std::vector<std::string>{word};
}

std::vector<std::string> TrainSets(const JobSpec& job) {
  std::vector<std::string> sets = {job.data.train};
  for (const auto& phase : job.phases) {
    if (!phase.train.empty()) sets.push_back(phase.train);
  }
  return sets;
}

/// Of any phase.
Range BatchesOf(const JobSpec& job) {
  const auto phases = job.AllPhases();
  const auto [least, most] =
      std::minmax_element(phases.begin(), phases.end(),
                          [](const auto& a, const auto& b) { return a.global_batch < b.global_batch; });
  return {static_cast<double>(least->global_batch), static_cast<double>(most->global_batch)};
}

/// A job that names no model takes any GPU, and one that takes none has none.
std::vector<std::string> GpuModelsOf(const JobSpec& job) {
  if (job.resources.cpu) return {};
  return job.resources.gpu_models.empty() ? std::vector<std::string>{"any"} : job.resources.gpu_models;
}

/// As the key says it, or as the labels that it stands for.
std::vector<std::string> CapacityOf(const JobSpec& job) {
  const auto& [labels, not_labels] = std::tie(job.resources.labels, job.resources.not_labels);
  if (const auto asked = labels.find("capacity"); asked != labels.end()) return asked->second;
  const auto but = not_labels.find("capacity");
  const bool no_spot = but != not_labels.end() &&
                       std::find(but->second.begin(), but->second.end(), "spot") != but->second.end();
  return {no_spot ? "on_demand" : "any"};
}

std::vector<std::string> VariablesOf(const JobSpec& job) {
  std::vector<std::string> names;
  for (const auto& [name, value] : job.command.env) names.push_back(name);
  return names;
}

std::vector<std::string> TrueOrFalse(bool value) { return {value ? "true" : "false"}; }

/// **A field that policies may bound is a row here.**
const std::vector<Field>& Fields() {
  constexpr double kNoLimit = std::numeric_limits<double>::infinity();
  constexpr auto kTrains = JobKind::kTraining;
  constexpr auto kConverts = JobKind::kConversion;
  constexpr auto kRuns = JobKind::kCommand;
  using Job = const JobSpec&;
  static const std::vector<Field> fields = {
      Number("priority", [](Job job) { return job.priority; }),
      Number("max_restarts", [](Job job) { return job.max_restarts; }),
      Time("grace", [](Job job) { return static_cast<double>(job.grace_ms); }),
      Time(
          "time_limit",
          [](Job job) { return job.time_limit_ms == 0 ? kNoLimit : static_cast<double>(job.time_limit_ms); }),
      // Of a gang that grows and shrinks, both ends.
      Span("resources.nodes",
           [](Job job) {
             return Range{1.0 * job.resources.nodes, 1.0 * job.resources.max_nodes};
           }),
      Number("resources.gpu.memory_gib",
             [](Job job) { return static_cast<double>(job.resources.gpu_memory_gib); }),
      OrAs({"resources.gpu.count"},
           Number("resources.ranks_per_node", [](Job job) { return job.resources.ranks_per_node; })),
      Span("resources.ranks",
           [](Job job) {
             return Range{1.0 * job.resources.nodes * job.resources.ranks_per_node, 1.0 * job.WorldSize()};
           }),
      OrAs({"phases"}, Only(kTrains, Number("train.epochs", [](Job job) { return job.train.epochs; }))),
      Only(kTrains, Span("train.global_batch", BatchesOf)),
      Only(kTrains, Number("data.workers", [](Job job) { return job.data.workers; })),
      OfSweep(Number("sweep.jobs", [](Job job) { return static_cast<double>(job.sweep->Members()); })),
      OfSweep(
          Number("sweep.max_running",
                 [](Job job) { return job.sweep->max_running == 0 ? kNoLimit : job.sweep->max_running; })),
      Words("kind", [](Job job) { return std::vector<std::string>{std::string(NameOf(job.kind))}; }),
      // One of no project is in none of those that are allowed.
      Words("project", [](Job job) { return std::vector<std::string>{job.project}; }),
      Words("secrets", [](Job job) { return job.secrets; }),
      Words("preemptible", [](Job job) { return TrueOrFalse(job.preemptible); }),
      Words("resources.gpu.model", GpuModelsOf),
      OrAs({"resources.labels.capacity", "resources.not_labels.capacity"},
           Words("resources.capacity", CapacityOf)),
      Words("resources.whole_nodes", [](Job job) { return TrueOrFalse(job.resources.whole_nodes); }),
      Only(kTrains, Words("model.name", [](Job job) { return Given(job.model.name); })),
      Only(kTrains, Words("model.init_from", [](Job job) { return Given(job.model.init_from); })),
      Only(kTrains, Set(Words("data.train", TrainSets))),
      Only(kTrains, Set(Words("data.val", [](Job job) { return Given(job.data.val); }))),
      Only(kTrains, Words("report.dir", [](Job job) { return Given(job.report.dir); })),
      Only(kConverts, Pattern(Words("convert.source", [](Job job) { return Given(job.convert.source); }))),
      Only(kConverts, Words("convert.target", [](Job job) { return Given(job.convert.target); })),
      // The program alone: what its arguments mean nobody knows.
      Only(kRuns, Program(Words("command.run", [](Job job) { return Given(job.command.run.front()); }))),
      Only(kRuns, Words("command.dir", [](Job job) { return Given(job.command.dir); })),
      Only(kRuns, Words("command.env", VariablesOf)),
      Words("checkpoint.dir", [](Job job) { return Given(job.checkpoint.dir); }),
  };
  return fields;
}

const Field* FieldOf(std::string_view name) {
  const auto& fields = Fields();
  const auto field =
      std::find_if(fields.begin(), fields.end(), [name](const Field& f) { return f.name == name; });
  return field == fields.end() ? nullptr : &*field;
}

std::string TextOfNumber(double value, Unit unit) {
  if (std::isinf(value)) return "without a limit";
  if (unit == Unit::kNumber) return fmt::format("{}", value);
  for (const auto& [size, letter] : {std::pair(86400e3, 'd'), {3600e3, 'h'}, {60e3, 'm'}, {1e3, 's'}}) {
    if (value >= size && std::fmod(value, size) == 0) return fmt::format("{}{}", value / size, letter);
  }
  return fmt::format("{}ms", value);
}

/// "is 4d, and at most 3d is allowed"; nothing where the job keeps the bound.
std::optional<std::string> Broken(const Field& field, const Bound& bound, const JobSpec& job,
                                  const SetAt& set_at = {}) {
  if (!IsOf(field, job)) return std::nullopt;
  if (field.unit != Unit::kWords) {
    const Range range = field.number(job);
    const auto broken = [&](std::string_view what, double limit) {
      std::string is = TextOfNumber(range.least, field.unit);
      if (range.most > range.least) is += " to " + TextOfNumber(range.most, field.unit);
      return fmt::format("is {}, and {} {} is allowed", is, what, TextOfNumber(limit, field.unit));
    };
    if (bound.at_most && range.most > *bound.at_most) return broken("at most", *bound.at_most);
    if (bound.at_least && range.least < *bound.at_least) return broken("at least", *bound.at_least);
    return std::nullopt;
  }
  if (bound.one_of.empty()) return std::nullopt;
  for (const auto& given : field.words(job)) {
    if (const auto part = field.is_pattern ? PartThatLeadsElsewhere(given) : std::nullopt) {
      return fmt::format("is '{}', in which '{}' may lead to another folder; that is not allowed", given,
                         *part);
    }
    const std::string word = field.is_program ? ProgramAsRead(given) : PathAsRead(given);
    const auto fits = [&bound](const std::string& value) {
      return std::any_of(bound.one_of.begin(), bound.one_of.end(), [&value](const std::string& pattern) {
        return fnmatch(pattern.c_str(), value.c_str(), 0) == 0;
      });
    };
    if (fits(word)) continue;
    const auto name = field.is_set && set_at ? set_at(word) : std::nullopt;
    if (name && fits(*name)) continue;
    return fmt::format("is '{}', and {}{} is allowed", word, bound.one_of.size() > 1 ? "one of " : "",
                       fmt::join(bound.one_of, ", "));
  }
  return std::nullopt;
}

bool IsFor(const Policy& policy, const std::string& owner, const std::string& project) {
  const auto has = [](const std::vector<std::string>& names, const std::string& name) {
    return names.empty() || std::find(names.begin(), names.end(), name) != names.end();
  };
  return has(policy.users, owner) && has(policy.projects, project);
}

/// The mapping that "a.b" is in, and "b".
std::pair<YamlMap, std::string> PlaceOf(YamlMap& root, const std::string& field) {
  YamlMap map = root;
  size_t begin = 0;
  for (size_t dot = field.find('.'); dot != std::string::npos; dot = field.find('.', begin)) {
    map = map.Child(field.substr(begin, dot - begin));
    begin = dot + 1;
  }
  return {map, field.substr(begin)};
}

Error Refusal(const Policy& policy, const std::string& field, const std::string& how, const std::string& yaml,
              const std::string& file) {
  const std::string message = fmt::format("{} by policy {}", how, policy.name);
  auto root = YamlMap::Parse(yaml, file);
  if (!root) return root.error();
  auto [map, key] = PlaceOf(*root, field);
  map.AddError(key, message, policy.text);
  return root->Errors().front();
}

/// Of the policy's bounds.
void AddBreaches(const Policy& policy, const JobSpec& spec, const std::string& yaml, const std::string& file,
                 const SetAt& set_at, std::vector<Error>& errors) {
  for (const auto& [name, bound] : policy.bounds) {
    if (const auto how = Broken(*FieldOf(name), bound, spec, set_at))
      errors.push_back(Refusal(policy, name, *how, yaml, file));
  }
}

Error RecipeRefusal(const Policy& policy, const RecipeBreach& breach, const std::string& yaml,
                    const std::string& file) {
  std::vector<std::string> names;
  for (const auto& recipe : policy.recipes) names.push_back(recipe.name);
  const std::string how = fmt::format("{}; {}{} is allowed", breach.text, names.size() > 1 ? "one of " : "",
                                      fmt::join(names, ", "));
  // What stands in a list is shown at the list.
  return Refusal(policy, breach.setting.substr(0, breach.setting.find('[')), how, yaml, file);
}

/// Also where something else stands on the way to it: "gpu: none" has no model to be filled in.
bool IsGiven(const std::string& yaml, const Field& field) {
  auto root = YamlMap::Parse(yaml, "");
  if (!root) return false;
  const auto has = [&root](const std::string& name) {
    auto [map, key] = PlaceOf(*root, name);
    return map.Has(key);
  };
  if (has(std::string(field.name)) || !root->Errors().empty()) return true;
  return std::any_of(field.other_names.begin(), field.other_names.end(), has);
}

void ReadBounds(YamlMap& map, std::string_view key, std::map<std::string, Bound>& bounds) {
  auto named = map.Child(key);
  for (const auto& name : named.Keys()) {
    const Field* field = FieldOf(name);
    const bool words = key == "one_of";
    if (field == nullptr || (field->unit == Unit::kWords) != words) {
      std::vector<std::string> allowed;
      for (const auto& known : Fields()) {
        if ((known.unit == Unit::kWords) == words) allowed.emplace_back(known.name);
      }
      named.AddError(
          name, fmt::format("is no field that can be bounded so; these can: {}", fmt::join(allowed, ", ")));
      named.String(name);  // it is known by this error
      continue;
    }
    if (words) {
      auto patterns = named.StringList(name);
      if (patterns && patterns->empty()) named.AddError(name, "is empty, so that nothing would be allowed");
      if (!patterns) continue;
      for (std::string& pattern : *patterns) {
        const bool has_folder = pattern.find('/') < pattern.find_first_of("*?[\\");
        if (field->is_program && has_folder) pattern = ProgramAsRead(pattern);
      }
      bounds[name].one_of = std::move(*patterns);
      continue;
    }
    std::optional<double> value;
    if (field->unit == Unit::kTime) {
      if (const auto ms = named.DurationMs(name)) value = static_cast<double>(*ms);
    } else {
      value = named.Double(name, -1e9, 1e9);
    }
    (key == "at_most" ? bounds[name].at_most : bounds[name].at_least) = value;
  }
  named.Finish();
}

void ReadDefaults(YamlMap& map, std::map<std::string, std::string>& defaults) {
  auto named = map.Child("defaults");
  for (const auto& name : named.Keys()) {
    auto value = named.String(name);
    if (FieldOf(name) == nullptr || name == "kind") {
      named.AddError(name, fmt::format("is no field that can have a default here; these can: {}",
                                       fmt::join(PolicyFields(), ", ")));
    } else if (value) {
      defaults[name] = std::move(*value);
    }
  }
  named.Finish();
}

/// Empty for anybody: a list that is there and empty would be for nobody.
std::vector<std::string> ReadNames(YamlMap& map, std::string_view key) {
  auto names = map.StringList(key).value_or(std::vector<std::string>());
  if (map.Has(key) && names.empty()) map.AddError(key, "is empty; leave it out where the policy is for all");
  return names;
}

/// A job that has this default and else what every job has; nothing where the value is none of the field.
std::optional<JobSpec> WithDefault(const std::string& field, const std::string& value) {
  const Field& of = *FieldOf(field);
  std::string plain = of.only_of == JobKind::kConversion
                          ? "name: a\nconvert: {source: /in, target: /out, to: webdataset}\n"
                      : of.only_of == JobKind::kCommand ? "name: a\ncommand: {run: [x]}\n"
                                                        : "name: a\ndata: {train: /in}\n";
  if (of.of_sweep) plain += "sweep: {grid: {seed: [1, 2]}}\n";
  const auto text = ChangeJobText(plain, "", JobChangesOf({fmt::format("{}={}", field, value)}));
  auto job = text ? ParseJobFile(*text, "") : tl::unexpected(std::vector<Error>());
  if (!job) return std::nullopt;
  return std::move(*job);
}

void ReadRecipes(YamlMap& map, std::vector<AllowedRecipe>& recipes) {
  const auto paths = map.StringList("recipes");
  if (paths && paths->empty()) map.AddError("recipes", "is empty, so that nothing would be allowed");
  for (const auto& path : paths.value_or(std::vector<std::string>())) {
    auto recipe = ReadAllowedRecipe(path);
    if (recipe) {
      recipes.push_back(std::move(*recipe));
    } else {
      map.AddError("recipes", fmt::format("can't take {}: {}", path, recipe.error().ToString()));
    }
  }
}

/// What no job could keep is an error here, and not for whoever submits one.
void CheckBounds(YamlMap& map, const Policy& policy) {
  const std::array<const char*, 5> keys = {"defaults", "at_least", "at_most", "one_of", "recipes"};
  if (std::none_of(keys.begin(), keys.end(), [&map](const char* key) { return map.Has(key); }))
    map.AddError("name", "the policy has none of defaults, at_least, at_most, one_of and recipes");
  for (const auto& [field, bound] : policy.bounds) {
    if (bound.at_least && bound.at_most && *bound.at_least > *bound.at_most)
      map.AddError("at_least", fmt::format("{}: more than at_most allows", field));
  }
  for (const auto& [field, value] : policy.defaults) {
    const auto job = WithDefault(field, value);
    const auto bound = policy.bounds.find(field);
    if (!job) {
      map.AddError("defaults", fmt::format("{}: '{}' is no value that it can have", field, value));
    } else if (bound != policy.bounds.end()) {
      if (const auto how = Broken(*FieldOf(field), bound->second, *job))
        map.AddError("defaults", fmt::format("{} {} by this policy", field, *how));
    }
  }
}

}  // namespace

std::vector<std::string> PolicyFields() {
  std::vector<std::string> names;
  for (const auto& field : Fields()) names.emplace_back(field.name);
  return names;
}

Policies ReadPolicies(YamlMap& root) {
  Policies policies;
  for (auto& map : root.Children("policies")) {
    Policy policy;
    policy.name = map.String("name").value_or("");
    if (policy.name.empty()) map.AddError("name", "missing; who breaks the policy is told its name");
    policy.text = map.String("text").value_or("");
    for (const auto& other : policies) {
      if (other.name == policy.name && !policy.name.empty())
        map.AddError("name", fmt::format("another policy is called '{}' too", policy.name));
    }
    policy.users = ReadNames(map, "users");
    policy.projects = ReadNames(map, "projects");
    ReadDefaults(map, policy.defaults);
    for (const char* key : {"at_least", "at_most", "one_of"}) ReadBounds(map, key, policy.bounds);
    ReadRecipes(map, policy.recipes);
    CheckBounds(map, policy);
    map.Finish();
    policies.push_back(std::move(policy));
  }
  return policies;
}

tl::expected<AllowedJob, std::vector<Error>> ApplyPolicies(const Policies& policies, std::string yaml,
                                                           JobSpec spec, const std::string& file,
                                                           const std::string& owner, const SetAt& set_at) {
  // Errors have their places there: with the defaults it is a text that nobody has.
  const std::string written = yaml;
  for (const auto& policy : policies) {
    if (!IsFor(policy, owner, spec.project)) continue;
    std::vector<std::string> sets;
    for (const auto& [field, value] : policy.defaults) {
      const Field& of = *FieldOf(field);
      if (IsOf(of, spec) && !IsGiven(yaml, of)) sets.push_back(fmt::format("{}={}", field, value));
    }
    if (sets.empty()) continue;
    auto text = ChangeJobText(yaml, file, JobChangesOf(sets));
    if (!text) return tl::unexpected(std::vector<Error>{text.error()});
    yaml = std::move(*text);
    auto changed = ParseJobFile(yaml, file);
    if (!changed) {
      auto errors = PlaceJobErrors(std::move(changed).error(), written, file, {});
      errors.front().hint = fmt::format("policy {} filled in {}", policy.name, fmt::join(sets, ", "));
      return tl::unexpected(std::move(errors));
    }
    spec = std::move(*changed);
  }
  std::vector<Error> errors;
  for (const auto& policy : policies) {
    if (!IsFor(policy, owner, spec.project)) continue;
    AddBreaches(policy, spec, written, file, set_at, errors);
    if (spec.kind != JobKind::kTraining || spec.sweep || policy.recipes.empty()) continue;
    if (const auto breach = BreachOf(policy.recipes, yaml))
      errors.push_back(RecipeRefusal(policy, *breach, written, file));
  }
  if (!errors.empty()) return tl::unexpected(InFileOrder(std::move(errors)));
  return AllowedJob{std::move(yaml), std::move(spec)};
}

tl::expected<void, std::vector<Error>> KeepsSweepBounds(const Policies& policies, const std::string& yaml,
                                                        const JobSpec& sweep, const std::string& file,
                                                        const std::string& owner,
                                                        const std::set<std::string>& projects) {
  std::vector<Error> errors;
  for (const auto& policy : policies) {
    const auto is_for = [&](const std::string& project) { return IsFor(policy, owner, project); };
    if (std::any_of(projects.begin(), projects.end(), is_for))
      AddBreaches(policy, sweep, yaml, file, {}, errors);
  }
  if (!errors.empty()) return tl::unexpected(InFileOrder(std::move(errors)));
  return {};
}

Status KeepsPolicies(const Policies& policies, const JobSpec& job, const std::string& field,
                     const std::string& owner) {
  for (const auto& policy : policies) {
    const auto bound = policy.bounds.find(field);
    if (bound == policy.bounds.end() || !IsFor(policy, owner, job.project)) continue;
    if (const auto how = Broken(*FieldOf(field), bound->second, job)) {
      return tl::unexpected(Error{.code = ErrorCode::kInvalidArgument,
                                  .message = fmt::format("{} {} by policy {}", field, *how, policy.name),
                                  .hint = policy.text});
    }
  }
  return {};
}

}  // namespace imgd
