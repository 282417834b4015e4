#include "trainer/environment.h"

#include <charconv>
#include <string_view>

#include "common/checkpoint/store.h"

namespace imgd::trainer {
namespace {

using Getter = std::function<const char*(const char*)>;

std::string Text(const Getter& get, const char* name) {
  const char* value = get(name);
  return value != nullptr ? value : "";
}

/// Leaves `out` alone where the variable is absent or empty.
template <typename T>
Status Number(const Getter& get, const char* name, int64_t min, int64_t max, T& out) {
  const std::string text = Text(get, name);
  if (text.empty()) return {};
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < min || value > max) {
    return Fail(ErrorCode::kInvalidArgument,
                "environment variable {}: found '{}' where a whole number from {} to {} is expected", name,
                text, min, max);
  }
  out = static_cast<T>(value);
  return {};
}

}  // namespace

Result<Environment> ReadEnvironment(const Getter& get) {
  constexpr int64_t kMany = 1'000'000;
  Environment env;
  IMGD_TRY(Number(get, "WORLD_SIZE", 1, kMany, env.world_size));
  IMGD_TRY(Number(get, "RANK", 0, env.world_size - 1, env.rank));
  env.local_world_size = 1;
  IMGD_TRY(Number(get, "LOCAL_WORLD_SIZE", 1, env.world_size, env.local_world_size));
  IMGD_TRY(Number(get, "LOCAL_RANK", 0, env.world_size - 1, env.local_rank));
  if (auto address = Text(get, "MASTER_ADDR"); !address.empty()) env.master_address = address;
  IMGD_TRY(Number(get, "MASTER_PORT", 1, 65535, env.master_port));
  int master_fd = -1;
  IMGD_TRY(Number(get, "IMGD_MASTER_FD", 0, kMany, master_fd));
  if (master_fd >= 0) env.master_fd = master_fd;
  env.store_is_elsewhere = Text(get, "TORCHELASTIC_USE_AGENT_STORE") == "True";
  env.attempt = Text(get, "TORCHELASTIC_RESTART_COUNT");
  env.host_address = Text(get, "IMGD_HOST_ADDRESS");
  env.gloo_interface = Text(get, "GLOO_SOCKET_IFNAME");

  env.nvjpeg_library = Text(get, "IMGD_NVJPEG_LIBRARY");
  env.cudart_library = Text(get, "IMGD_CUDART_LIBRARY");

  env.run_dir = Text(get, "IMGD_RUN_DIR");
  IMGD_TRY(Number(get, "IMGD_JOB_ID", 0, INT64_MAX, env.job_id));
  IMGD_TRY(Number(get, "IMGD_GENERATION", 0, INT64_MAX, env.generation));
  env.checkpoint_dir = Text(get, "IMGD_CHECKPOINT_DIR");
  if (auto file = Text(get, "IMGD_RESUME"); !file.empty()) env.resume_file = file;

  env.trace_file = Text(get, "IMGD_TRACE_SAMPLES");

  int64_t seconds = 0;
  IMGD_TRY(Number(get, "IMGD_JOIN_TIMEOUT_SECONDS", 1, kMany, seconds));
  if (seconds > 0) env.join_timeout = std::chrono::seconds(seconds);
  seconds = 0;
  IMGD_TRY(Number(get, "IMGD_COLLECTIVE_TIMEOUT_SECONDS", 1, kMany, seconds));
  if (seconds > 0) env.collective_timeout = std::chrono::seconds(seconds);
  return env;
}

std::filesystem::path LocalFolderOf(const JobSpec& spec, const Environment& env) {
  const auto root = CheckpointRoot(spec, env.checkpoint_dir);
  if (!IsInS3(root)) return root;
  return env.run_dir.empty() ? std::filesystem::path("checkpoints") / spec.name : env.run_dir;
}

std::filesystem::path FiguresFolder(const JobSpec& spec, const Environment& env) {
  return spec.report.dir.empty() ? LocalFolderOf(spec, env) / "logs" : std::filesystem::path(spec.report.dir);
}

}  // namespace imgd::trainer
