#pragma once

#include <istream>
#include <optional>
#include <string>
#include <vector>

#include "cli/settings.h"
#include "common/job_changes.h"

namespace imgd::cli {

/// A job file that is ready to be sent.
struct JobText {
  std::string yaml;   ///< with --set and --name applied; else exactly as it was read
  std::string file;   ///< its name in messages, in UTF-8
  uint64_t jobs = 1;  ///< that it makes: of a sweep, its members
  // What it was made of.
  std::string read;
  std::vector<JobChange> changes;
};

/// The daemon's errors, whose lines are those of the text that was sent, as ReadJobText() tells its own.
Errors PlaceErrors(Errors errors, const JobText& text);

/// Reads `file` ("-": `in`; "recipe:NAME": one of Recipes()), applies `sets` ("train.epochs=5"), `name`
/// (absent: the file's) and what `more` options change, and checks the result as the daemon will. Errors: as
/// the file system's; or every error of the file, each at its place in the file as it was written, or at the
/// option that made it.
Reply<JobText> ReadJobText(const std::string& file, std::istream& in, const std::vector<std::string>& sets,
                           const std::optional<std::string>& name, const std::vector<JobChange>& more = {});

/// The same of a text that was read already; `file` is its name in messages.
Reply<JobText> ChangeJobTextOf(const std::string& text, const std::string& file,
                               const std::vector<std::string>& sets, const std::optional<std::string>& name,
                               const std::vector<JobChange>& more = {});

/// As YAML that is this text and nothing else.
std::string YamlText(const std::string& text);

}  // namespace imgd::cli
