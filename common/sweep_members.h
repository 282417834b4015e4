#pragma once

#include <map>
#include <string>
#include <vector>

#include "common/error.h"
#include "common/job_changes.h"
#include "common/job_file.h"
#include "common/sweep_spec.h"

namespace imgd {

/// A job of a sweep.
struct SweepMember {
  std::vector<SweepValue> values;  ///< that make it differ from the others
  JobSpec spec;                    ///< its text is the sweep's file with the values set, and without `sweep`
};

/// The members, each checked as any job file, and all of the kind that the file is of. `spec` is of `text`,
/// with a sweep. Errors: all of the first member that has some, each of which says which member it is.
tl::expected<std::vector<SweepMember>, std::vector<Error>> MakeSweepMembers(const std::string& text,
                                                                            const std::string& file,
                                                                            const JobSpec& spec);

/// What is found wrong with members after they were made: all of it, each thing once, however many have it.
class ErrorsOfMembers {
 public:
  /// Adds those of a member's file, which is the `number`th from 1.
  void Add(const SweepMember& member, size_t number, const std::vector<Error>& errors);
  bool empty() const { return found_.empty(); }
  /// Each at the member's setting, or at its place in `text`, which is the sweep's file as it was written;
  /// with the first member that has it, unless all `members` have. Of many the first ones, and how many more
  /// there are.
  std::vector<Error> InTermsOf(const std::string& text, const std::string& file, size_t members) const;

 private:
  struct Found {
    Error error;
    std::string member;              ///< the first that has it
    std::vector<JobChange> changes;  ///< that make this one
    size_t members = 0;              ///< that have it
  };
  std::vector<Found> found_;
  std::map<std::string, size_t> by_message_;  ///< places in found_
};

}  // namespace imgd
