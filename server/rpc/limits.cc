#include "server/rpc/limits.h"

#include <algorithm>
#include <string_view>

#include "common/dataset_ref.h"
#include "common/job_file.h"
#include "common/url.h"
#include "common/utf8.h"

namespace imgd {
namespace {

constexpr size_t kMostKeyBytes = 128;
constexpr size_t kMostTextBytes = 256;
/// A path.
constexpr size_t kMostFileNameBytes = 4096;

bool IsPrintableAscii(unsigned char c) { return c >= 0x20 && c < 0x7f; }

/// A name or a word of somebody: protobuf has seen to its being UTF-8.
Status CheckText(std::string_view field, std::string_view text, size_t most = kMostTextBytes) {
  if (text.size() > most) {
    return Fail(ErrorCode::kInvalidArgument, "{}: found {} bytes; at most {} are allowed", field, text.size(),
                most);
  }
  const auto control = FindControl(text);
  if (!control) return {};
  std::string bytes;  // of one character; those of more have two or three
  const auto lead = static_cast<unsigned char>(text[*control]);
  for (const char c : text.substr(*control, lead < 0x80 ? 1 : lead < 0xE0 ? 2 : 3))
    bytes += fmt::format("{:02x}", static_cast<unsigned>(static_cast<unsigned char>(c)));
  return Fail(ErrorCode::kInvalidArgument,
              "{}: found the control character 0x{} at byte {}; printable text is allowed", field, bytes,
              *control + 1);
}

/// A URL that names the server and the file, and no more.
Status CheckAddress(const std::string& address) {
  if (!IsUrl(address)) return {};
  const auto url = ParseUrl(address);
  if (!url) return Fail(url.error().code, "address: {}", url.error().message);
  if (url->userinfo.empty() && url->query.empty()) return {};
  return Fail(ErrorCode::kInvalidArgument,
              "address: a URL with a name and password or with a query would be kept and shown to all; give "
              "credentials to the nodes by file or environment (docs/data-sources.md)");
}

Status CheckJobText(const std::string& yaml) {
  if (yaml.size() <= kMaxJobFileBytes) return {};
  return Fail(ErrorCode::kInvalidArgument, "job_yaml: found {} bytes; at most {} (1 MiB) are allowed",
              yaml.size(), kMaxJobFileBytes);
}

Status CheckKey(const std::string& key) {
  const bool printable = std::all_of(key.begin(), key.end(), IsPrintableAscii);
  if (key.size() <= kMostKeyBytes && printable) return {};
  return Fail(ErrorCode::kInvalidArgument,
              "idempotency_key: found {} bytes{}; at most {} bytes of printable ASCII are allowed",
              key.size(), printable ? "" : " that are not all printable ASCII", kMostKeyBytes);
}

Status CheckHosts(const v1::StartReportRequest& request) {
  constexpr int kMostHosts = 1024;
  if (request.hosts().empty() || request.hosts_size() > kMostHosts) {
    return Fail(ErrorCode::kInvalidArgument, "hosts: found {}; 1 to {} are allowed", request.hosts_size(),
                kMostHosts);
  }
  for (const auto& host : request.hosts()) {
    if (host.empty()) return Fail(ErrorCode::kInvalidArgument, "hosts: found an empty name");
    IMGD_TRY(CheckText("hosts", host));
  }
  return {};
}

}  // namespace

Status CheckLimits(const v1::SubmitJobRequest& request) {
  IMGD_TRY(CheckJobText(request.job_yaml()));
  IMGD_TRY(CheckKey(request.idempotency_key()));
  IMGD_TRY(CheckText("file_name", request.file_name(), kMostFileNameBytes));
  return CheckText("owner", request.owner());
}

Status CheckLimits(const v1::ListJobsRequest& request) {
  IMGD_TRY(CheckText("owner", request.owner()));
  IMGD_TRY(CheckText("name_contains", request.name_contains()));
  return CheckText("page_token", request.page_token());
}

Status CheckLimits(const v1::SessionBegin& begin) {
  constexpr int kMostArguments = 4096;
  constexpr size_t kMostArgumentBytes = 128 << 10;
  constexpr uint32_t kMostPort = 65535;
  IMGD_TRY(CheckText("actor", begin.actor()));
  IMGD_TRY(CheckText("node", begin.node()));
  if (begin.place_case() == v1::SessionBegin::PLACE_NOT_SET)
    return Fail(ErrorCode::kInvalidArgument, "place: missing; a node or a rank of a job is needed");
  if (begin.has_parent() == (begin.has_command() || begin.has_forward()) ||
      (begin.has_command() && begin.has_forward()))
    return Fail(ErrorCode::kInvalidArgument, "one of a command, a forward and a connection of one is needed");
  size_t bytes = 0;
  for (const auto& argument : begin.command().arguments()) {
    bytes += argument.size() + 1;
    if (argument.find('\0') != std::string::npos)
      return Fail(ErrorCode::kInvalidArgument, "command: found a NUL in an argument");
  }
  if (bytes > kMostArgumentBytes || begin.command().arguments_size() > kMostArguments) {
    return Fail(ErrorCode::kInvalidArgument, "command: at most {} arguments and {} bytes are allowed",
                kMostArguments, kMostArgumentBytes);
  }
  if (begin.forward().port() <= kMostPort) return {};
  return Fail(ErrorCode::kInvalidArgument, "forward.port: found {}; allowed: 0 to {}", begin.forward().port(),
              kMostPort);
}

Status CheckLimits(const v1::SessionFrame& frame) {
  constexpr size_t kMostFrameBytes = 256 << 10;
  const size_t bytes = frame.input().size() + frame.output().size() + frame.error_output().size();
  if (bytes <= kMostFrameBytes) return {};
  return Fail(ErrorCode::kInvalidArgument,
              "frame: found {} bytes; at most {} are allowed, more in further frames", bytes,
              kMostFrameBytes);
}

Status CheckLimits(const v1::CancelJobRequest& request) { return CheckText("actor", request.actor()); }

Status CheckLimits(const v1::DeleteJobRequest& request) { return CheckText("actor", request.actor()); }

Status CheckLimits(const v1::GetSweepRequest& request) { return CheckText("name", request.name()); }

Status CheckLimits(const v1::CancelSweepRequest& request) { return CheckText("actor", request.actor()); }

Status CheckLimits(const v1::ChangeJobRequest& request) {
  constexpr int kMostPriority = 1000;
  constexpr int64_t kMostMs = int64_t{3650} * 24 * 3600 * 1000;
  const auto within = [](const char* field, int64_t found, int64_t least, int64_t most) -> Status {
    if (found >= least && found <= most) return {};
    return Fail(ErrorCode::kInvalidArgument, "{}: found {}; allowed: {} to {}", field, found, least, most);
  };
  IMGD_TRY(CheckText("actor", request.actor()));
  switch (request.change_case()) {
    case v1::ChangeJobRequest::kPriority:
      return within("priority", request.priority(), -kMostPriority, kMostPriority);
    case v1::ChangeJobRequest::kTimeLimitMs:
      return within("time_limit_ms", request.time_limit_ms(), 0, kMostMs);
    case v1::ChangeJobRequest::kMoreTimeMs:
      return within("more_time_ms", request.more_time_ms(), -kMostMs, kMostMs);
    case v1::ChangeJobRequest::CHANGE_NOT_SET:
      return Fail(ErrorCode::kInvalidArgument, "change: missing; what shall become of the job?");
    default:
      return {};
  }
}

Status CheckLimits(const v1::SetAsideNodeRequest& request) {
  IMGD_TRY(CheckText("reason", request.reason()));
  return CheckText("actor", request.actor());
}

Status CheckLimits(const v1::ReturnNodeRequest& request) { return CheckText("actor", request.actor()); }

Status CheckLimits(const v1::ForgetNodeRequest& request) { return CheckText("actor", request.actor()); }

Status CheckLimits(const v1::ProfileJobRequest& request) {
  constexpr uint32_t kMostSteps = 1000;
  if (request.steps() >= 1 && request.steps() <= kMostSteps) return {};
  return Fail(ErrorCode::kInvalidArgument, "steps: found {}; allowed: 1 to {}", request.steps(), kMostSteps);
}

Status CheckLimits(const v1::RegisterDatasetRequest& request) {
  const auto& dataset = request.dataset();
  if (!IsDatasetName(dataset.name())) {
    return Fail(ErrorCode::kInvalidArgument, "name: found '{}'; allowed: {}", dataset.name(),
                kDatasetNameRule);
  }
  IMGD_TRY(CheckText("address", dataset.address(), kMostFileNameBytes));
  IMGD_TRY(CheckAddress(dataset.address()));
  if (dataset.address().empty() || ParseDatasetRef(dataset.address())) {
    return Fail(
        ErrorCode::kInvalidArgument,
        "address: found '{}' where a folder that the nodes share, a pattern of shards or a URL is expected",
        dataset.address());
  }
  return CheckText("owner", dataset.owner());
}

Status CheckLimits(const v1::ReportDatasetRequest& request) {
  if (!request.facts().has_contents() && !request.facts().has_verification())
    return Fail(ErrorCode::kInvalidArgument, "facts: missing; what was found?");
  return CheckText("actor", request.actor());
}

Status CheckLimits(const v1::CreateTokenRequest& request) {
  constexpr uint64_t kMostTtlMs = uint64_t{3650} * 24 * 3600 * 1000;
  if (request.ttl_ms() > kMostTtlMs) {
    return Fail(ErrorCode::kInvalidArgument, "ttl_ms: found {}; at most {} (ten years) are allowed",
                request.ttl_ms(), kMostTtlMs);
  }
  return CheckText("owner", request.owner());
}

Status CheckLimits(const v1::CreateJoinTokenRequest& request) { return CheckText("owner", request.owner()); }

Status CheckLimits(const v1::RevokeNodeRequest& request) { return CheckText("actor", request.actor()); }

Status CheckLimits(const v1::BackupRequest& request) { return CheckText("actor", request.actor()); }
Status CheckLimits(const v1::ReloadRequest& request) { return CheckText("actor", request.actor()); }

Status CheckLimits(const v1::StartReportRequest& request) {
  constexpr size_t kLeastKeyBytes = 16;
  constexpr uint32_t kMostRanks = 1'000'000;
  IMGD_TRY(CheckJobText(request.job_yaml()));
  IMGD_TRY(CheckKey(request.idempotency_key()));
  if (request.idempotency_key().size() < kLeastKeyBytes) {
    return Fail(ErrorCode::kInvalidArgument, "idempotency_key: found {} bytes; at least {} are needed",
                request.idempotency_key().size(), kLeastKeyBytes);
  }
  if (request.name().empty()) return Fail(ErrorCode::kInvalidArgument, "name: missing; a job needs a name");
  if (request.nodes() == 0 || request.ranks_per_node() == 0 || request.nodes() > kMostRanks ||
      request.ranks_per_node() > kMostRanks) {
    return Fail(ErrorCode::kInvalidArgument, "nodes, ranks_per_node: found {} and {}; 1 to {} are allowed",
                request.nodes(), request.ranks_per_node(), kMostRanks);
  }
  IMGD_TRY(CheckHosts(request));
  IMGD_TRY(CheckText("name", request.name()));
  IMGD_TRY(CheckText("checkpoint_dir", request.checkpoint_dir(), kMostFileNameBytes));
  return CheckText("owner", request.owner());
}

Status CheckLimits(const v1::ReportEventsRequest& request) {
  constexpr int kMostEvents = 1000;
  constexpr size_t kMostEventBytes = 64 << 10;
  if (request.events_size() > kMostEvents) {
    return Fail(ErrorCode::kInvalidArgument, "events: found {}; at most {} are allowed in one request",
                request.events_size(), kMostEvents);
  }
  for (const auto& event : request.events()) {
    if (event.ByteSizeLong() <= kMostEventBytes) continue;
    return Fail(ErrorCode::kInvalidArgument, "events: number {} has {} bytes; at most {} are allowed",
                event.sequence(), event.ByteSizeLong(), kMostEventBytes);
  }
  return {};
}

}  // namespace imgd
