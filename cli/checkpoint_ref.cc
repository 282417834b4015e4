#include "cli/checkpoint_ref.h"

#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>

#include "cli/job_ref.h"

namespace imgd::cli {
namespace {

namespace fs = std::filesystem;

bool IsPath(std::string_view text) {
  return text.find('/') != std::string_view::npos || text == "." || text == "..";
}

std::optional<uint64_t> WholeNumberIn(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

bool IsWhich(std::string_view text) {
  return text == "best" || text == "latest" || WholeNumberIn(text) ||
         (text.starts_with('g') && text.find("/step") != std::string_view::npos);
}

/// "rn50:best" is rn50 and best. A folder may have a colon in its name.
std::pair<std::string, std::string> SplitReference(const std::string& reference) {
  const auto colon = reference.rfind(':');
  if (colon == std::string::npos || !IsWhich(std::string_view(reference).substr(colon + 1)))
    return {reference, ""};
  return {reference.substr(0, colon), reference.substr(colon + 1)};
}

tl::unexpected<Errors> One(Error error) { return tl::unexpected(Errors{std::move(error)}); }

std::string HostName() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "this machine";
}

/// Where a job's folder is, when it is not here.
Error NotSeenHere(const v1::Job& job) {
  if (!job.has_last_checkpoint() && job.generation() == 0) {
    return {.code = ErrorCode::kNotFound,
            .message =
                fmt::format("job {} ({}) has not started, so it has no checkpoints", job.id(), job.name())};
  }
  std::vector<std::string> nodes;
  for (const auto& placement : job.placements()) nodes.push_back(placement.node());
  return {
      .code = ErrorCode::kFailedPrecondition,
      .message = fmt::format(
          "the checkpoints of job {} ({}) are in {} on {}, and there is no such folder on {}", job.id(),
          job.name(), job.checkpoint_dir(),
          nodes.empty() ? "the nodes that it ran on" : fmt::format("{}", fmt::join(nodes, ", ")), HostName()),
      .hint = "run imgcli there, or name the folder as it is called here"};
}

/// A folder without a slash is a likely mistake.
Errors WithHint(Errors errors, const std::string& reference) {
  std::error_code ignored;
  if (!errors.empty() && fs::is_directory(reference, ignored))
    errors.front().hint = fmt::format("'{0}' is taken for a job; the folder here is ./{0}", reference);
  return errors;
}

Reply<CheckpointFolder> Opened(Context& context, const fs::path& root,
                               std::optional<v1::Job> job = std::nullopt) {
  auto store = OpenCheckpoints(root, {}, context.env());
  if (!store) return One(store.error());
  return CheckpointFolder{std::move(*store), std::move(job)};
}

Reply<CheckpointFolder> FolderOfJob(Context& context, const std::string& reference) {
  auto client = context.client();
  if (!client) return tl::unexpected(WithHint(client.error(), reference));
  const auto id = FindJob(**client, reference);
  if (!id) return tl::unexpected(WithHint(id.error(), reference));
  auto answer = (*client)->GetJob(*id);
  if (!answer) return tl::unexpected(answer.error());
  context.Warn(answer->warning());
  const auto& job = answer->job();
  const fs::path root = job.checkpoint_dir();
  std::error_code ignored;
  if (!IsInS3(root) && !fs::is_directory(root, ignored)) return One(NotSeenHere(job));
  return Opened(context, root, job);
}

/// A folder of several jobs' folders is a likely mistake.
Error NoCheckpointsIn(const fs::path& root) {
  Error error{.code = ErrorCode::kNotFound,
              .message = fmt::format("there are no complete checkpoints in {}", root.native())};
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(root, ignored)) {
    const auto generations = ListGenerations(entry.path());
    if (generations && !generations->empty() && entry.path().filename() != "logs")
      error.hint = fmt::format("did you mean {}?", entry.path().native());
  }
  return error;
}

Reply<CheckpointSummary> Choose(const CheckpointStore& store, const std::string& which) {
  const fs::path& root = store.root();
  const auto all = SummarizeCheckpoints(store);
  if (!all) return One(all.error());
  if (all->empty()) return One(NoCheckpointsIn(root));
  if (which.empty() || which == "latest") return all->front();
  const auto found = std::find_if(all->begin(), all->end(), [&](const CheckpointSummary& summary) {
    if (which == "best") return summary.best;
    return WholeNumberIn(which) ? summary.ref.step == *WholeNumberIn(which) : ShortName(summary.ref) == which;
  });
  if (found != all->end()) return *found;
  if (which == "best") {
    return One({.code = ErrorCode::kNotFound,
                .message = fmt::format("none of the {} checkpoints in {} was validated", all->size(),
                                       root.native())});
  }
  std::vector<std::string> names;
  for (const auto& summary : *all) names.push_back(ShortName(summary.ref));
  return One({.code = ErrorCode::kNotFound,
              .message = fmt::format("no checkpoint {} in {}; there are: {}",
                                     WholeNumberIn(which) ? "of step " + which : which, root.native(),
                                     fmt::join(names, ", "))});
}

}  // namespace

std::string ShortName(const CheckpointRef& ref) {
  return fmt::format("g{}/step{}", ref.generation, ref.step);
}

Reply<CheckpointFolder> FindCheckpointFolder(Context& context, const std::string& where) {
  if (!IsPath(where)) return FolderOfJob(context, where);
  std::error_code ignored;
  if (!IsInS3(where) && !fs::is_directory(where, ignored)) {
    return One({.code = ErrorCode::kNotFound, .message = fmt::format("there is no folder {}", where)});
  }
  return Opened(context, where);
}

std::optional<NamedCheckpoint> CheckpointItself(Context& context, const std::string& where) {
  if (!IsPath(where)) return std::nullopt;
  fs::path folder = IsInS3(where) ? fs::path(where) : fs::absolute(where).lexically_normal();
  if (!folder.has_filename()) folder = folder.parent_path();  // a slash at the end
  auto above = Opened(context, folder.parent_path().parent_path());
  if (!above) return std::nullopt;
  const auto ref = CheckpointAt(*above->store, folder);
  if (!ref) return std::nullopt;
  auto summary = SummarizeCheckpoint(*above->store, *ref);
  return NamedCheckpoint{std::move(*above), std::move(summary)};
}

Reply<NamedCheckpoint> FindCheckpoint(Context& context, const std::string& reference) {
  const auto [where, which] = SplitReference(reference);
  if (which.empty()) {
    if (auto itself = CheckpointItself(context, where)) return std::move(*itself);
  }
  auto folder = FindCheckpointFolder(context, where);
  if (!folder) return tl::unexpected(folder.error());
  auto chosen = Choose(*folder->store, which);
  if (!chosen) return tl::unexpected(chosen.error());
  return NamedCheckpoint{std::move(*folder), std::move(*chosen)};
}

}  // namespace imgd::cli
