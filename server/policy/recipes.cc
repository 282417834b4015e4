#include "server/policy/recipes.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "common/files.h"
#include "common/job_changes.h"
#include "common/job_file.h"

namespace imgd {
namespace {

/// **What is a job's own whatever recipe it follows, with all below it, is a row here.**
constexpr std::array kOwn = {
    "name",
    "about",
    "project",
    "priority",
    "preemptible",
    "seed",
    "grace",
    "max_restarts",
    "time_limit",
    "after",
    "not_before",
    "notify",
    "secrets",
    "sweep",
    "resources",
    "elastic",
    "checkpoint",
    "report",
    "dist",
    "limits",
    "guard",
    "data.train",
    "data.val",
    "data.workers",
    "data.prefetch",
    "data.memory_mib",
    "data.decoder",
    "data.segments",
    "data.max_bad_images",
    "train.device",
    "train.threads",
    "train.bind_numa",
    "train.log_every_steps",
    "train.cuda_graph",
    "train.eval_every_epochs",
};

bool IsOwn(const std::string& name) {
  // Each phase may have a data set of its own too.
  if (name.starts_with("phases[") && name.ends_with("].train")) return true;
  return std::any_of(kOwn.begin(), kOwn.end(), [&name](const std::string& own) {
    return name == own || name.starts_with(own + ".") || name.starts_with(own + "[");
  });
}

SettingMap OfTraining(const std::string& yaml) {
  SettingMap settings = SettingsOfYaml(yaml);
  std::erase_if(settings, [](const auto& setting) { return IsOwn(setting.first); });
  return settings;
}

std::string Shown(const std::string& value, std::string_view otherwise) {
  return value.empty() ? std::string(otherwise) : value;
}

}  // namespace

Result<AllowedRecipe> ReadAllowedRecipe(const std::string& path) {
  IMGD_ASSIGN(const std::string yaml, ReadFile(path));
  // Recipes leave open what is trained on.
  IMGD_ASSIGN(const std::string whole, ChangeJobText(yaml, path, JobChangesOf({"data.train=/any"})));
  const auto job = ParseJobFile(whole, path);
  if (!job) return tl::unexpected(job.error().front());
  if (job->kind != JobKind::kTraining)
    return Fail(ErrorCode::kInvalidArgument, "{}: its job does not train", path);
  return AllowedRecipe{std::filesystem::path(path).stem().native(), OfTraining(yaml)};
}

std::optional<RecipeBreach> BreachOf(const std::vector<AllowedRecipe>& recipes, const std::string& yaml) {
  const SettingMap job = OfTraining(yaml);
  std::vector<Difference> fewest;
  const AllowedRecipe* nearest = nullptr;
  for (const auto& recipe : recipes) {
    auto differences = SettingsThatDiffer(job, recipe.settings);
    if (differences.empty()) return std::nullopt;
    if (nearest != nullptr && differences.size() >= fewest.size()) continue;
    nearest = &recipe;
    fewest = std::move(differences);
  }
  if (nearest == nullptr) return std::nullopt;
  const auto& [name, has, wanted] = fewest.front();
  return RecipeBreach{name, fmt::format("is {}, and recipe {} {}", Shown(has, "left out"), nearest->name,
                                        wanted.empty() ? "leaves it out" : "has " + wanted)};
}

}  // namespace imgd
