#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/error.h"
#include "common/job_file.h"

namespace imgd {

/// A field of a job file that the command line changes.
struct JobChange {
  std::string assignment;  ///< "train.epochs=5"
  std::string shown;       ///< what the user typed: "--set train.epochs=5", "--name x"
};

/// One `--set` for each assignment.
std::vector<JobChange> JobChangesOf(const std::vector<std::string>& sets);

/// The text with the changes made, one after the other; exactly as it is when there are none.
/// Errors: those of the YAML itself, at their place in `file`; or the change that can't be made.
Result<std::string> ChangeJobText(std::string_view text, const std::string& file,
                                  const std::vector<JobChange>& changes);

/// Errors of the changed text, told in terms of what the user wrote: at their place in the file, or at the
/// change that made them.
std::vector<Error> PlaceJobErrors(std::vector<Error> errors, std::string_view original,
                                  const std::string& file, const std::vector<JobChange>& changes);

/// ParseJobFile after `--set`s. Errors: all of them, each at its place in the file or at its `--set`.
tl::expected<JobSpec, std::vector<Error>> ParseChangedJobFile(std::string_view text, const std::string& file,
                                                              const std::vector<std::string>& sets);

}  // namespace imgd
