#include "trainer/dist/nccl_log.h"

#include <unistd.h>

#include <cstdlib>
#include <string_view>

#include "common/files.h"

namespace imgd::trainer {
namespace {

constexpr size_t kMostLogBytes = size_t{64} << 20;

void SetDefault(const char* name, const char* value) { ::setenv(name, value, /*overwrite=*/0); }

}  // namespace

NcclLog NcclLog::Begin(const JobSpec::Dist& dist, const Environment& env, Fabric fabric) {
  for (const auto& [name, value] : dist.nccl) ::setenv(name.c_str(), value.c_str(), /*overwrite=*/1);
  NcclLog log;
  log.fabric_ = std::move(fabric);
  if (env.world_size == env.local_world_size) return log;
  log.note_ = fmt::format("between the nodes: {}", log.fabric_.ToString());
  if (!log.fabric_.fast() || dist.allow_tcp) return log;
  if (std::getenv("NCCL_DEBUG_FILE") != nullptr) {
    log.note_ += "; NCCL_DEBUG_FILE is set, so that a fall-back to TCP is not looked for";
    return log;
  }
  const auto folder = env.run_dir.empty() ? std::filesystem::temp_directory_path() : env.run_dir;
  log.file_ = folder / fmt::format("nccl.{}.{}", env.local_rank, ::getpid());
  log.keep_ = !env.run_dir.empty();
  // NCCL says at this level, and the one above, which network it uses.
  const char* level = std::getenv("NCCL_DEBUG");
  if (level == nullptr || std::string_view(level) != "TRACE") ::setenv("NCCL_DEBUG", "INFO", /*overwrite=*/1);
  SetDefault("NCCL_DEBUG_SUBSYS", "INIT,NET");
  ::setenv("NCCL_DEBUG_FILE", log.file_.c_str(), /*overwrite=*/1);
  return log;
}

Status NcclLog::Check() const {
  if (file_.empty()) return {};
  const auto text = ReadFile(file_, kMostLogBytes);
  // NCCL goes on writing to what has no name any more.
  if (!keep_) ::unlink(file_.c_str());
  if (!text) return {};  // without its log there is nothing to say
  return CheckFabric(fabric_, NcclNetworks(*text));
}

}  // namespace imgd::trainer
