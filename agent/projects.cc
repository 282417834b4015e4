#include "agent/projects.h"

#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <set>

#include "agent/secrets.h"
#include "common/text.h"

namespace imgd {
namespace {

constexpr const char* kOthers = "*";

VisiblePaths ReadPaths(YamlMap map) {
  VisiblePaths paths{.limited = true};
  for (auto [key, list] : {std::pair("read", &paths.read), std::pair("write", &paths.write)}) {
    if (auto found = map.StringList(key)) *list = std::move(*found);
    for (const auto& path : *list) {
      if (!std::filesystem::path(path).is_absolute())
        map.AddError(key, fmt::format("found '{}' where absolute paths are expected", path));
    }
  }
  map.Finish();
  return paths;
}

ProjectRules ReadRules(YamlMap map) {
  ProjectRules rules;
  if (auto names = map.StringList("secrets")) rules.secrets = std::move(*names);
  for (const auto& name : rules.secrets) {
    if (!IsName(name)) map.AddError("secrets", fmt::format("found '{}'; {}", name, kNameRule));
  }
  if (auto user = map.String("user")) rules.user.name = *user;
  if (auto groups = map.StringList("groups")) rules.groups = std::move(*groups);
  if (map.Has("user") && rules.user.name.empty())
    map.AddError("user", "is empty; leave it out for the agent's own");
  if (!rules.groups.empty() && rules.user.name.empty())
    map.AddError("groups", "are a user's, and no user is named");
  if (map.Has("paths")) rules.paths = ReadPaths(map.Child("paths"));
  map.Finish();
  return rules;
}

tl::unexpected<Error> About(const std::string& project, Error error) {
  error.message = fmt::format("projects: '{}': {}", project, error.message);
  return tl::unexpected(std::move(error));
}

Status CheckUser(const UnixUser& user, const std::filesystem::path& trainer) {
  IMGD_TRY(MayBecome(user));
  return DoAs(user, [&]() -> Status {
    if (::access(trainer.c_str(), X_OK) == 0) return {};
    return FailErrno(errno, fmt::format("user {} can't run {}", user.name, trainer.native()));
  });
}

/// Where some ranks have users, no others are to be root because nobody thought of them.
Status CheckRoot(const Projects& projects) {
  if (::geteuid() != 0 || !projects.HasUsers()) return {};
  const auto refuse = [](const std::string& project) {
    return Fail(ErrorCode::kInvalidArgument,
                "projects: '{}' has no user, and its ranks would be root, as the agent is; name one, or root",
                project);
  };
  for (const auto& [project, rules] : projects.rules) {
    if (!rules.user.given()) return refuse(project);
  }
  return projects.rules.contains(kOthers) ? Status() : refuse(kOthers);
}

/// The number of the user that the rules' ranks run as.
uint32_t UserOf(const ProjectRules& rules) { return rules.user.given() ? rules.user.uid : ::geteuid(); }

bool MayHave(const ProjectRules& rules, const std::string& secret) {
  return std::find(rules.secrets.begin(), rules.secrets.end(), secret) != rules.secrets.end();
}

/// That it can be read, and that no project which may not have it runs as a user who gets at it: root, the
/// agent, whose files secrets are, or the user of a project that may, who has it in his processes.
Status CheckSecret(const Projects& projects, const std::string& secret) {
  IMGD_TRY(ReadSecrets(projects.secrets_dir, {secret}));
  std::set<uint32_t> has = {0, ::geteuid()};
  for (const auto& [project, rules] : projects.rules) {
    if (MayHave(rules, secret)) has.insert(UserOf(rules));
  }
  auto all = projects.rules;
  all.try_emplace(kOthers);
  for (const auto& [project, rules] : all) {
    if (MayHave(rules, secret) || !has.contains(UserOf(rules))) continue;
    return Fail(ErrorCode::kInvalidArgument,
                "the secret '{}' is not for '{}', and its ranks could read it all the same, since they run "
                "as {}; give "
                "them a user of their own",
                secret, project, rules.user.given() ? "user " + rules.user.name : "the agent's user");
  }
  return {};
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

bool Projects::HasUsers() const {
  return std::any_of(rules.begin(), rules.end(), [](const auto& rule) { return rule.second.user.given(); });
}

Result<Projects> CompleteProjects(Projects projects, const std::filesystem::path& trainer) {
  for (auto& [project, rules] : projects.rules) {
    if (rules.paths.limited) {
      if (auto version = LandlockVersion(); !version) {
        version.error().message = "paths: " + version.error().message;
        return About(project, std::move(version).error());
      }
    }
    if (!rules.user.given()) continue;
    auto found = FindUnixUser(rules.user.name, rules.groups);
    if (!found) return About(project, std::move(found).error());
    rules.user = std::move(*found);
    if (auto may = CheckUser(rules.user, trainer); !may) return About(project, std::move(may).error());
  }
  IMGD_TRY(CheckRoot(projects));
  for (const auto& [project, rules] : projects.rules) {
    for (const auto& secret : rules.secrets) {
      if (auto kept = CheckSecret(projects, secret); !kept) return About(project, std::move(kept).error());
    }
  }
  return projects;
}

Status OpenTo(const Projects& projects, const std::filesystem::path& state_dir) {
  const auto runs = state_dir / "runs";
  for (const auto& [project, rules] : projects.rules) {
    if (!rules.user.given()) continue;
    for (const auto& folder : {state_dir, runs}) {
      struct stat facts {};
      if (::stat(folder.c_str(), &facts) != 0 ||
          ::chmod(folder.c_str(), (facts.st_mode & 07777) | S_IXOTH) != 0)
        return FailErrno(errno,
                         fmt::format("cannot let user {} through {}", rules.user.name, folder.native()));
    }
    IMGD_TRY(DoAs(rules.user, [&runs, &user = rules.user]() -> Status {
      if (::access(runs.c_str(), X_OK) == 0) return {};
      return FailErrno(errno,
                       fmt::format("user {} can't reach {}, where runs are", user.name, runs.native()));
    }));
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
