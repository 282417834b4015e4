#include "server/rpc/limits.h"

#include <algorithm>
#include <string_view>

#include "common/dataset_ref.h"
#include "common/job_file.h"
#include "common/url.h"

namespace imgd {
namespace {

constexpr size_t kMostKeyBytes = 128;
constexpr size_t kMostTextBytes = 256;
/// A path.
constexpr size_t kMostFileNameBytes = 4096;

bool IsControl(unsigned char c) { return c < 0x20 || c == 0x7f; }
bool IsPrintableAscii(unsigned char c) { return c >= 0x20 && c < 0x7f; }

/// A name or a word of somebody: protobuf has seen to its being UTF-8.
Status CheckText(std::string_view field, std::string_view text, size_t most = kMostTextBytes) {
  if (text.size() > most) {
    return Fail(ErrorCode::kInvalidArgument, "{}: found {} bytes; at most {} are allowed", field, text.size(),
                most);
  }
  const auto control = std::find_if(text.begin(), text.end(), IsControl);
  if (control == text.end()) return {};
  return Fail(ErrorCode::kInvalidArgument,
              "{}: found the control character 0x{:02x} at byte {}; printable text is allowed", field,
              static_cast<unsigned>(static_cast<unsigned char>(*control)), control - text.begin() + 1);
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

}  // namespace

Status CheckLimits(const v1::SubmitJobRequest& request) {
  if (request.job_yaml().size() > kMaxJobFileBytes) {
    return Fail(ErrorCode::kInvalidArgument, "job_yaml: found {} bytes; at most {} (1 MiB) are allowed",
                request.job_yaml().size(), kMaxJobFileBytes);
  }
  const auto& key = request.idempotency_key();
  if (key.size() > kMostKeyBytes || !std::all_of(key.begin(), key.end(), IsPrintableAscii)) {
    return Fail(
        ErrorCode::kInvalidArgument,
        "idempotency_key: found {} bytes{}; at most {} bytes of printable ASCII are allowed", key.size(),
        std::all_of(key.begin(), key.end(), IsPrintableAscii) ? "" : " that are not all printable ASCII",
        kMostKeyBytes);
  }
  IMGD_TRY(CheckText("file_name", request.file_name(), kMostFileNameBytes));
  return CheckText("owner", request.owner());
}

Status CheckLimits(const v1::ListJobsRequest& request) {
  IMGD_TRY(CheckText("owner", request.owner()));
  IMGD_TRY(CheckText("name_contains", request.name_contains()));
  return CheckText("page_token", request.page_token());
}

Status CheckLimits(const v1::CancelJobRequest& request) { return CheckText("actor", request.actor()); }

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

}  // namespace imgd
