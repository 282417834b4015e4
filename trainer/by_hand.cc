#include "trainer/by_hand.h"

#include <limits.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "common/checkpoint/checkpoint.h"
#include "common/files.h"

namespace imgd::trainer {
namespace {

using GetVariable = std::function<const char*(const char*)>;

constexpr size_t kMostTokenBytes = 4096;

std::string VariableOf(const GetVariable& get, const char* name) {
  const char* value = get(name);
  return value != nullptr ? value : "";
}

std::string HostName() {
  std::array<char, HOST_NAME_MAX + 1> name{};
  const bool known = ::gethostname(name.data(), name.size() - 1) == 0 && name.front() != 0;
  return known ? name.data() : "unknown";
}

Result<std::string> TokenOf(const ReportArguments& arguments, const GetVariable& get) {
  std::string token;
  std::string from = "IMGD_REPORT_TOKEN";
  if (arguments.token_file.empty()) {
    token = VariableOf(get, "IMGD_REPORT_TOKEN");
  } else {
    from = "--report-token-file: " + arguments.token_file;
    const auto text = ReadFile(arguments.token_file, kMostTokenBytes);
    if (!text) return Fail(ErrorCode::kInvalidArgument, "--report-token-file: {}", text.error().message);
    token = *text;
  }
  while (!token.empty() && (token.back() == '\n' || token.back() == '\r' || token.back() == ' '))
    token.pop_back();
  if (token.empty()) {
    return tl::unexpected(Error{.code = ErrorCode::kInvalidArgument,
                                .message = fmt::format("--report: there is no token in {}", from),
                                .hint = "imgcli token create --scope report makes one; put it into "
                                        "IMGD_REPORT_TOKEN, or into a file for --report-token-file"});
  }
  // It stands in a header; what it is stays unsaid.
  const bool plain = std::all_of(token.begin(), token.end(), [](char c) { return c > ' ' && c < 0x7f; });
  if (!plain) return Fail(ErrorCode::kInvalidArgument, "{}: this is no token of imgd's", from);
  return token;
}

Status CheckCaFile(const std::string& file) {
  if (file.empty()) return {};
  const auto text = ReadFile(file, size_t{16} << 20);
  if (!text) return Fail(ErrorCode::kInvalidArgument, "--report-ca: {}", text.error().message);
  if (text->find("-----BEGIN CERTIFICATE-----") != std::string::npos) return {};
  return Fail(ErrorCode::kInvalidArgument, "--report-ca: {} has no certificate in PEM", file);
}

}  // namespace

Result<std::optional<report::HttpReport>> ReportByHand(const ReportArguments& arguments, const JobSpec& job,
                                                       const Environment& env, const GetVariable& get) {
  if (arguments.url.empty()) return std::nullopt;
  IMGD_ASSIGN(std::string url, report::CheckReportUrl(arguments.url));
  if (env.rank != 0 || !env.run_dir.empty()) return std::nullopt;
  IMGD_ASSIGN(std::string token, TokenOf(arguments, get));
  IMGD_TRY(CheckCaFile(arguments.ca_file));
  report::HttpReport report{.url = std::move(url),
                            .token = std::move(token),
                            .ca_file = arguments.ca_file,
                            .name = job.name,
                            .job_yaml = job.text,
                            .hosts = {HostName()}};
  report.owner = VariableOf(get, "USER");
  if (report.owner.empty()) report.owner = VariableOf(get, "LOGNAME");
  const bool even = env.local_world_size > 1 && env.world_size % env.local_world_size == 0;
  report.ranks_per_node = even ? env.local_world_size : 1;
  report.nodes = env.world_size / report.ranks_per_node;
  std::error_code ignored;
  report.checkpoint_dir =
      std::filesystem::absolute(CheckpointRoot(job, env.checkpoint_dir), ignored).string();
  return report;
}

}  // namespace imgd::trainer
