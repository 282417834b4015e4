#include "agent/projects.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "agent/secrets.h"
#include "common/text.h"

namespace imgd {
namespace {

constexpr const char* kOthers = "*";

ProjectRules ReadRules(YamlMap map) {
  ProjectRules rules;
  if (auto names = map.StringList("secrets")) rules.secrets = std::move(*names);
  for (const auto& name : rules.secrets) {
    if (!IsName(name)) map.AddError("secrets", fmt::format("found '{}'; {}", name, kNameRule));
  }
  map.Finish();
  return rules;
}

/// "project vision", "no project".
std::string NameOfProject(const std::string& project) {
  return project.empty() ? "no project" : fmt::format("project {}", project);
}

}  // namespace

const ProjectRules& Projects::Of(const std::string& project) const {
  static const ProjectRules kNone;
  auto found = rules.find(project);
  if (found == rules.end()) found = rules.find(kOthers);
  return found == rules.end() ? kNone : found->second;
}

Projects ReadProjects(YamlMap& root) {
  Projects projects;
  if (auto folder = root.String("secrets_dir")) projects.secrets_dir = *folder;
  if (!projects.secrets_dir.is_absolute()) root.AddError("secrets_dir", "an absolute path is expected");
  auto map = root.Child("projects");
  for (const auto& name : map.Keys()) {
    if (name != kOthers && !IsName(name))
      map.AddError(name, fmt::format("found '{}'; {}; '*' is all others", name, kNameRule));
    projects.rules[name] = ReadRules(map.Child(name));
  }
  map.Finish();
  return projects;
}

Status CheckProjects(const Projects& projects) {
  for (const auto& [project, rules] : projects.rules) {
    for (const auto& secret : rules.secrets) {
      if (auto read = ReadSecrets(projects.secrets_dir, {secret}); !read) {
        read.error().message =
            fmt::format("projects: secret '{}' of '{}': {}", secret, project, read.error().message);
        return tl::unexpected(std::move(read).error());
      }
    }
  }
  return {};
}

Result<JobClaims> ClaimsOf(std::string_view job_yaml) {
  IMGD_ASSIGN(auto root, YamlMap::Parse(job_yaml, "job.yaml"));
  JobClaims claims{.project = root.String("project").value_or(""),
                   .secrets = root.StringList("secrets").value_or(std::vector<std::string>())};
  if (auto errors = root.Errors(); !errors.empty()) return tl::unexpected(std::move(errors.front()));
  return claims;
}

Status CheckClaims(const Projects& projects, const JobClaims& claims) {
  const auto& allowed = projects.Of(claims.project).secrets;
  for (const auto& name : claims.secrets) {
    if (std::find(allowed.begin(), allowed.end(), name) != allowed.end()) continue;
    const std::string others =
        allowed.empty() ? "none here" : fmt::format("{} here", fmt::join(allowed, ", "));
    return Fail(ErrorCode::kPermissionDenied, "a job of {} may not have the secret '{}'; it may have {}",
                NameOfProject(claims.project), name, others);
  }
  return {};
}

}  // namespace imgd
