#include "server/policy/policy.h"

#include <fmt/ranges.h>
#include <fnmatch.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <functional>
#include <limits>

#include "common/job_changes.h"

namespace imgd {
namespace {

enum class Unit : uint8_t { kNumber, kTime, kWords };

/// A field that a policy can be about.
struct Field {
  std::string_view name;
  Unit unit;
  std::function<double(const JobSpec&)> number;  ///< of numbers and times, which are in milliseconds
  /// Of words: its values; none where the job leaves it open and that is nobody's business.
  std::function<std::vector<std::string>(const JobSpec&)> words;
  std::optional<JobKind> only_of = {};  ///< jobs of other kinds don't have it
};

bool IsOf(const Field& field, const JobSpec& job) { return !field.only_of || *field.only_of == job.kind; }

Field Only(JobKind kind, Field field) {
  field.only_of = kind;
  return field;
}

Field Number(std::string_view name, std::function<double(const JobSpec&)> get) {
  return {name, Unit::kNumber, std::move(get), {}};
}

Field Time(std::string_view name, std::function<double(const JobSpec&)> get) {
  return {name, Unit::kTime, std::move(get), {}};
}

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

/// **A field that policies may bound is a row here.**
const std::vector<Field>& Fields() {
  constexpr double kNoLimit = std::numeric_limits<double>::infinity();
  constexpr auto kTrains = JobKind::kTraining;
  constexpr auto kConverts = JobKind::kConversion;
  static const std::vector<Field> fields = {
      Number("priority", [](const JobSpec& job) { return job.priority; }),
      Number("max_restarts", [](const JobSpec& job) { return job.max_restarts; }),
      Time("grace", [](const JobSpec& job) { return static_cast<double>(job.grace_ms); }),
      Time("time_limit",
           [](const JobSpec& job) {
             return job.time_limit_ms == 0 ? kNoLimit : static_cast<double>(job.time_limit_ms);
           }),
      Number("resources.nodes", [](const JobSpec& job) { return job.resources.nodes; }),
      Number("resources.ranks_per_node", [](const JobSpec& job) { return job.resources.ranks_per_node; }),
      Number("resources.ranks",
             [](const JobSpec& job) {
               return static_cast<double>(job.resources.nodes) * job.resources.ranks_per_node;
             }),
      Only(kTrains, Number("train.epochs", [](const JobSpec& job) { return job.train.epochs; })),
      Only(kTrains, Number("train.global_batch", [](const JobSpec& job) { return job.train.global_batch; })),
      Only(kTrains, Number("data.workers", [](const JobSpec& job) { return job.data.workers; })),
      Words("kind",
            [](const JobSpec& job) { return std::vector<std::string>{std::string(NameOf(job.kind))}; }),
      // One of no project is in none of those that are allowed.
      Words("project", [](const JobSpec& job) { return std::vector<std::string>{job.project}; }),
      Words("secrets", [](const JobSpec& job) { return job.secrets; }),
      Words("preemptible",
            [](const JobSpec& job) { return std::vector<std::string>{job.preemptible ? "true" : "false"}; }),
      Only(kTrains, Words("model.name", [](const JobSpec& job) { return Given(job.model.name); })),
      Only(kTrains, Words("model.init_from", [](const JobSpec& job) { return Given(job.model.init_from); })),
      Only(kTrains, Words("data.train", TrainSets)),
      Only(kTrains, Words("data.val", [](const JobSpec& job) { return Given(job.data.val); })),
      Only(kConverts, Words("convert.source", [](const JobSpec& job) { return Given(job.convert.source); })),
      Only(kConverts, Words("convert.target", [](const JobSpec& job) { return Given(job.convert.target); })),
      Words("checkpoint.dir", [](const JobSpec& job) { return Given(job.checkpoint.dir); }),
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

/// A path as the system reads it, behind the host of a URL too: "/data/../etc" is "/etc".
std::string AsRead(const std::string& word) {
  const size_t scheme = word.find("://");
  const size_t begin = scheme == std::string::npos ? 0 : scheme + 3;
  return word.substr(0, begin) + std::filesystem::path(word.substr(begin)).lexically_normal().native();
}

/// "is 4d, and at most 3d is allowed"; nothing where the job keeps the bound.
std::optional<std::string> Broken(const Field& field, const Bound& bound, const JobSpec& job) {
  if (!IsOf(field, job)) return std::nullopt;
  if (field.unit != Unit::kWords) {
    const double value = field.number(job);
    const auto broken = [&](std::string_view what, double limit) {
      return fmt::format("is {}, and {} {} is allowed", TextOfNumber(value, field.unit), what,
                         TextOfNumber(limit, field.unit));
    };
    if (bound.at_most && value > *bound.at_most) return broken("at most", *bound.at_most);
    if (bound.at_least && value < *bound.at_least) return broken("at least", *bound.at_least);
    return std::nullopt;
  }
  if (bound.one_of.empty()) return std::nullopt;
  for (const auto& given : field.words(job)) {
    const std::string word = AsRead(given);
    const bool fits = std::any_of(
        bound.one_of.begin(), bound.one_of.end(),
        [&word](const std::string& pattern) { return fnmatch(pattern.c_str(), word.c_str(), 0) == 0; });
    if (fits) continue;
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

Error RecipeRefusal(const Policy& policy, const RecipeBreach& breach, const std::string& yaml,
                    const std::string& file) {
  std::vector<std::string> names;
  for (const auto& recipe : policy.recipes) names.push_back(recipe.name);
  const std::string how = fmt::format("{}; {}{} is allowed", breach.text, names.size() > 1 ? "one of " : "",
                                      fmt::join(names, ", "));
  // What stands in a list is shown at the list.
  return Refusal(policy, breach.setting.substr(0, breach.setting.find('[')), how, yaml, file);
}

bool IsGiven(const std::string& yaml, const std::string& field) {
  auto root = YamlMap::Parse(yaml, "");
  if (!root) return false;
  auto [map, key] = PlaceOf(*root, field);
  return map.Has(key);
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
      if (patterns) bounds[name].one_of = std::move(*patterns);
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
  const bool converts = FieldOf(field)->only_of == JobKind::kConversion;
  const std::string plain = converts ? "name: a\nconvert: {source: /in, target: /out, to: webdataset}\n"
                                     : "name: a\ndata: {train: /in}\n";
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

Result<AllowedJob> ApplyPolicies(const Policies& policies, std::string yaml, JobSpec spec,
                                 const std::string& file, const std::string& owner) {
  for (const auto& policy : policies) {
    if (!IsFor(policy, owner, spec.project)) continue;
    std::vector<std::string> sets;
    for (const auto& [field, value] : policy.defaults) {
      if (IsOf(*FieldOf(field), spec) && !IsGiven(yaml, field))
        sets.push_back(fmt::format("{}={}", field, value));
    }
    if (sets.empty()) continue;
    IMGD_ASSIGN(yaml, ChangeJobText(yaml, file, JobChangesOf(sets)));
    auto changed = ParseJobFile(yaml, file);
    if (!changed) {
      Error error = changed.error().front();
      error.hint = fmt::format("policy {} filled in {}", policy.name, fmt::join(sets, ", "));
      return tl::unexpected(std::move(error));
    }
    spec = std::move(*changed);
  }
  for (const auto& policy : policies) {
    if (!IsFor(policy, owner, spec.project)) continue;
    for (const auto& [name, bound] : policy.bounds) {
      if (const auto how = Broken(*FieldOf(name), bound, spec))
        return tl::unexpected(Refusal(policy, name, *how, yaml, file));
    }
    if (spec.kind != JobKind::kTraining || policy.recipes.empty()) continue;
    if (const auto breach = BreachOf(policy.recipes, yaml))
      return tl::unexpected(RecipeRefusal(policy, *breach, yaml, file));
  }
  return AllowedJob{std::move(yaml), std::move(spec)};
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
