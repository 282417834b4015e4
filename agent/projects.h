#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "agent/landlock.h"
#include "agent/unix_user.h"
#include "common/error.h"
#include "common/yaml.h"

namespace imgd {

/// What the ranks of one project's jobs may have on this node.
struct ProjectRules {
  std::vector<std::string> secrets;  ///< by name
  UnixUser user;                     ///< whom they run as; its numbers are CompleteProjects()'s to find
  VisiblePaths paths;                ///< that they see, besides what every rank needs
  std::vector<std::string> groups;   ///< besides the user's own
};

/// The operator's rules for jobs by their project; `projects` and `secrets_dir` in agent.yaml.
struct Projects {
  std::filesystem::path secrets_dir = "/etc/imgd/secrets";
  std::map<std::string, ProjectRules> rules;  ///< by project; "*": of all that are not named, and of none

  /// Of the jobs of `project`; empty: of those that have none.
  const ProjectRules& Of(const std::string& project) const;
  bool HasUsers() const;
};

/// Reads the two keys. Errors are the map's.
Projects ReadProjects(YamlMap& root);

/// Finds the users and checks the rest. Call while this process has one thread.
/// Errors: a user that is not known, that this process has no right to become, or that can't run `trainer`;
/// ranks that would be root though nobody said so; paths on a kernel without Landlock; a secret that can't be
/// read, or that a project which may not have it would get at.
Result<Projects> CompleteProjects(Projects projects, const std::filesystem::path& trainer);

/// Lets the ranks' users through the folder to the runs in it. Errors: where they can't reach it.
Status OpenTo(const Projects& projects, const std::filesystem::path& state_dir);

/// What a job file says that these rules are about.
struct JobClaims {
  std::string project;
  std::vector<std::string> secrets;
};
/// Errors: kInvalidArgument for a text in which they can't be read.
Result<JobClaims> ClaimsOf(std::string_view job_yaml);

/// Errors: kPermissionDenied with the name of a secret that the job may not have here, and those that it may.
Status CheckClaims(const Projects& projects, const JobClaims& claims);

}  // namespace imgd
