#include "cli/job_ref.h"

#include <fmt/format.h>

#include <charconv>

#include "cli/words.h"
#include "common/utf8.h"
#include "common/yaml.h"

namespace imgd::cli {
namespace {

constexpr uint32_t kPage = 1000;
constexpr int kMostPages = 100;  ///< a bound on the search, not on the daemon

/// Calls `visit` for each job that the request finds, newest first, until it returns false.
Reply<void> ForEachJob(Client& client, v1::ListJobsRequest request, const std::function<void()>& on_retry,
                       const std::function<bool(const v1::Job&)>& visit) {
  request.set_page_size(kPage);
  for (int page = 0; page < kMostPages; ++page) {
    auto answer = client.ListJobs(request, on_retry);
    if (!answer) return tl::unexpected(std::move(answer).error());
    for (const auto& job : answer->jobs()) {
      if (!visit(job)) return {};
    }
    if (answer->next_page_token().empty()) break;
    request.set_page_token(answer->next_page_token());
  }
  return {};
}

/// Asks for the jobs with `name` in their names that have ended, or that have not.
v1::ListJobsRequest JobsLike(const std::string& name, bool ended) {
  v1::ListJobsRequest request;
  request.set_name_contains(ToUtf8(name));
  for (int number = v1::JOB_STATE_QUEUED; number <= v1::JOB_STATE_CANCELLED; ++number) {
    const auto state = static_cast<v1::JobState>(number);
    if (IsFinal(state) == ended) request.add_states(state);
  }
  return request;
}

Errors NotFound(std::string message, std::string hint) {
  return {Error{.code = ErrorCode::kNotFound, .message = std::move(message), .hint = std::move(hint)}};
}

Errors NoSuchName(Client& client, const std::string& name) {
  v1::GetSweepRequest sweep;
  sweep.set_name(ToUtf8(name));
  if (client.GetSweep(sweep)) {
    return NotFound(
        fmt::format("no job is named '{}', it is a sweep", ToUtf8(name)),
        fmt::format("imgcli sweep {} shows its jobs, which are named {}[1] and so on", name, name));
  }
  auto page = client.ListJobs({});
  if (!page) return std::move(page).error();
  std::vector<std::string> names;
  for (const auto& job : page->jobs()) names.push_back(job.name());
  const auto nearest = NearestWord(name, names);
  return NotFound(fmt::format("no job is named '{}'", ToUtf8(name)),
                  nearest ? fmt::format("did you mean '{}'?", *nearest) : "imgcli jobs shows what there is");
}

Errors Ambiguous(const std::string& name, const std::vector<uint64_t>& ids) {
  return NotFound(
      fmt::format("{} jobs named '{}' have not ended: {}", ids.size(), name, fmt::join(ids, ", ")),
      "give the number of the one that you mean");
}

}  // namespace

Reply<uint64_t> FindJob(Client& client, const std::string& reference, const std::function<void()>& on_retry) {
  uint64_t number = 0;
  const char* end = reference.data() + reference.size();
  const auto parsed = std::from_chars(reference.data(), end, number);
  if (parsed.ec == std::errc() && parsed.ptr == end) return number;

  std::vector<uint64_t> alive;
  auto seen = ForEachJob(client, JobsLike(reference, /*ended=*/false), on_retry, [&](const v1::Job& job) {
    if (job.name() == reference) alive.push_back(job.id());
    return true;
  });
  if (!seen) return tl::unexpected(std::move(seen).error());
  if (alive.size() > 1) return tl::unexpected(Ambiguous(reference, alive));
  if (alive.size() == 1) return alive.front();
  // There may be many more that have ended; the newest come first.
  uint64_t newest = 0;
  seen = ForEachJob(client, JobsLike(reference, /*ended=*/true), on_retry, [&](const v1::Job& job) {
    if (job.name() == reference) newest = job.id();
    return newest == 0;
  });
  if (!seen) return tl::unexpected(std::move(seen).error());
  if (newest != 0) return newest;
  return tl::unexpected(NoSuchName(client, reference));
}

Reply<v1::GetJobResponse> GetJobOf(Client& client, const std::string& reference) {
  const auto id = FindJob(client, reference);
  if (!id) return tl::unexpected(id.error());
  return client.GetJob(*id);
}

}  // namespace imgd::cli
