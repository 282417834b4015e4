#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "common/error.h"
#include "common/job_file.h"
#include "common/yaml.h"
#include "server/policy/recipes.h"

/// What the operator fixes or bounds in job files. Pure, but for reading the files of recipes.
namespace imgd {

/// Bounds of one field; what is given holds.
struct Bound {
  std::optional<double> at_least;   ///< of numbers; durations in milliseconds
  std::optional<double> at_most;    ///< the same; "no limit" is more than any
  std::vector<std::string> one_of;  ///< of words: shell patterns, one of which has to match
  bool operator==(const Bound&) const = default;
};

/// A rule for the jobs of some, or of all.
struct Policy {
  std::string name;                             ///< as the refusal names it
  std::string text;                             ///< the operator's words for who breaks it; may be empty
  std::vector<std::string> users;               ///< whose jobs; empty: anybody's
  std::vector<std::string> projects;            ///< of which projects; empty: of any and of none
  std::map<std::string, std::string> defaults;  ///< values of fields that the file leaves out, as in YAML
  std::map<std::string, Bound> bounds;          ///< by field
  std::vector<AllowedRecipe> recipes;           ///< jobs that train follow one of these; none: any
  bool operator==(const Policy&) const = default;
};

using Policies = std::vector<Policy>;

/// Reads the list `policies`. Errors are added to the map's.
Policies ReadPolicies(YamlMap& root);

/// A job file that keeps the rules.
struct AllowedJob {
  std::string yaml;  ///< with the defaults
  JobSpec spec;
};

/// A registered data set at this address, as a job file names it ("dataset:in1k/train"); nothing where there
/// is none.
using SetAt = std::function<std::optional<std::string>(const std::string& address)>;

/// The file with the defaults of the policies for its owner and its project, if it keeps their bounds.
/// `spec` is what `yaml` says. The file of a sweep is held to what is of sweeps; each of its jobs is to be
/// asked about by itself. Errors, of every rule that is broken: kInvalidArgument at the field's place, with
/// the rule's words, in the order of the file. A data set may be where a rule wants it to be, or be called as
/// one wants it to be called: files that are submitted again have the address of what they named.
tl::expected<AllowedJob, std::vector<Error>> ApplyPolicies(const Policies& policies, std::string yaml,
                                                           JobSpec spec, const std::string& file,
                                                           const std::string& owner,
                                                           const SetAt& set_at = {});

/// For a sweep whose jobs are of projects that its own file may not name: whether what is of sweeps keeps the
/// bounds of the policies for each of these. Errors: as ApplyPolicies().
tl::expected<void, std::vector<Error>> KeepsSweepBounds(const Policies& policies, const std::string& yaml,
                                                        const JobSpec& sweep, const std::string& file,
                                                        const std::string& owner,
                                                        const std::set<std::string>& projects);

/// For what is asked of a job after it was submitted: whether the field may be as `job` has it. Errors:
/// kInvalidArgument with the rule's words.
Status KeepsPolicies(const Policies& policies, const JobSpec& job, const std::string& field,
                     const std::string& owner);

/// Names of the fields that a policy can be about.
std::vector<std::string> PolicyFields();

}  // namespace imgd
