#include "common/sweep_members.h"

#include <fmt/format.h>

#include "common/job_changes.h"
#include "common/yaml.h"

namespace imgd {
namespace {

/// They are all in memory at once.
constexpr size_t kMostSweepBytes = size_t{64} << 20;

/// Of what members have wrong, so much is told.
constexpr size_t kMostMemberErrors = 10;

std::string MemberName(size_t number, const std::vector<SweepValue>& values) {
  return fmt::format("sweep member {} ({})", number, SweepText(values));
}

JobChange ChangeBy(const SweepValue& value, const std::string& member) {
  return {.assignment = fmt::format("{}={}", value.name, value.value), .shown = member};
}

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
    const std::string member = MemberName(members.size() + 1, values);
    YamlEditor editor = base->Copy();
    std::vector<JobChange> changes;
    for (const auto& value : values) {
      changes.push_back(ChangeBy(value, member));
      if (auto set = editor.Set(changes.back().assignment); !set) {
        Error error = std::move(set).error();
        error.message = fmt::format("{}: {}", value.name, error.message);
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
    if (checked->kind != spec.kind) {
      return tl::unexpected(std::vector<Error>{Error{
          .code = ErrorCode::kInvalidArgument,
          .message = fmt::format("its kind is {}, and that of the file {}; a sweep's jobs are of one kind",
                                 NameOf(checked->kind), NameOf(spec.kind)),
          .file = member}});
    }
    members.push_back({std::move(values), std::move(*checked)});
  }
  return members;
}

void ErrorsOfMembers::Add(const SweepMember& member, size_t number, const std::vector<Error>& errors) {
  for (const auto& error : errors) {
    const auto [known, is_new] = by_message_.try_emplace(error.message, found_.size());
    if (is_new) {
      Found& found = found_.emplace_back(Found{.error = error, .member = MemberName(number, member.values)});
      for (const auto& value : member.values) found.changes.push_back(ChangeBy(value, found.member));
    }
    ++found_[known->second].members;
  }
}

std::vector<Error> ErrorsOfMembers::InTermsOf(const std::string& text, const std::string& file,
                                              size_t members) const {
  std::vector<Error> out;
  for (const auto& found : found_) {
    if (out.size() == kMostMemberErrors) {
      out.push_back(
          {.code = found.error.code,
           .message = fmt::format("and {} more in jobs of the sweep", found_.size() - kMostMemberErrors),
           .file = file});
      break;
    }
    Error error = PlaceJobErrors({found.error}, text, file, found.changes).front();
    const bool by_setting = error.file == found.member;
    if (!by_setting && found.members < members) error.message += fmt::format(" ({})", found.member);
    if (found.members > 1 && (by_setting || found.members < members))
      error.message += fmt::format(" (and so {} more of its jobs)", found.members - 1);
    out.push_back(std::move(error));
  }
  return out;
}

}  // namespace imgd
