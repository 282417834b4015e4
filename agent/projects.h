#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/error.h"
#include "common/yaml.h"

namespace imgd {

/// What the ranks of one project's jobs may have on this node.
struct ProjectRules {
  std::vector<std::string> secrets;  ///< by name
};

/// The operator's rules for jobs by their project; `projects` and `secrets_dir` in agent.yaml.
struct Projects {
  std::filesystem::path secrets_dir = "/etc/imgd/secrets";
  std::map<std::string, ProjectRules> rules;  ///< by project; "*": of all that are not named, and of none

  /// Of the jobs of `project`; empty: of those that have none.
  const ProjectRules& Of(const std::string& project) const;
};

/// Reads the two keys. Errors are the map's.
Projects ReadProjects(YamlMap& root);

/// Errors: a secret that can't be read.
Status CheckProjects(const Projects& projects);

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
