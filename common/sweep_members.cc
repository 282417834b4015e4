#include "common/sweep_members.h"

#include <fmt/format.h>

#include "common/job_changes.h"
#include "common/yaml.h"

namespace imgd {
namespace {

/// They are all in memory at once.
constexpr size_t kMostSweepBytes = size_t{64} << 20;

/// The member's errors, in terms of its settings; those that are none of its settings' say whose they are.
std::vector<Error> NameMember(std::vector<Error> errors, const std::string& member) {
  for (auto& error : errors) {
    if (error.file != member) error.message += fmt::format(" ({})", member);
  }
  return errors;
}

}  // namespace

tl::expected<std::vector<SweepMember>, std::vector<Error>> MakeSweepMembers(const std::string& text,
                                                                            const std::string& file,
                                                                            const JobSpec& spec) {
  auto base = YamlEditor::Parse(text);
  if (!base) return tl::unexpected(std::vector<Error>{base.error()});
  base->Remove("sweep");
  std::vector<SweepMember> members;
  size_t bytes = 0;
  for (auto& values : ExpandSweep(*spec.sweep)) {
    const std::string member = fmt::format("sweep member {} ({})", members.size() + 1, SweepText(values));
    YamlEditor editor = base->Copy();
    std::vector<JobChange> changes;
    for (const auto& [name, value] : values) {
      changes.push_back({.assignment = fmt::format("{}={}", name, value), .shown = member});
      if (auto set = editor.Set(changes.back().assignment); !set) {
        Error error = std::move(set).error();
        error.message = fmt::format("{}: {}", name, error.message);
        error.file = member;
        return tl::unexpected(std::vector<Error>{std::move(error)});
      }
    }
    const std::string yaml = editor.Text();
    bytes += yaml.size();
    if (bytes > kMostSweepBytes) {
      return tl::unexpected(std::vector<Error>{
          Error{.code = ErrorCode::kInvalidArgument,
                .message = fmt::format("sweep: the files of its jobs have more than {} MiB together",
                                       kMostSweepBytes >> 20),
                .file = file,
                .hint = "sweep fewer jobs, or a shorter file"}});
    }
    auto checked = ParseJobFile(editor, yaml, file);
    if (!checked) {
      return tl::unexpected(
          NameMember(PlaceJobErrors(std::move(checked).error(), text, file, changes), member));
    }
    members.push_back({std::move(values), std::move(*checked)});
  }
  return members;
}

}  // namespace imgd
