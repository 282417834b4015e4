#include "trainer/dist/nccl_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <string_view>
#include <system_error>
#include <utility>

#include "common/files.h"

namespace imgd::trainer {
namespace {

constexpr size_t kMostLogBytes = size_t{64} << 20;

void SetDefault(const char* name, const char* value) { ::setenv(name, value, /*overwrite=*/0); }

/// A new one, that nobody else has put there. Empty where it can't be made.
std::filesystem::path MakeTemporaryFile() {
  std::error_code error;
  std::string path = (std::filesystem::temp_directory_path(error) / "nccl.XXXXXX").native();
  const UniqueFd fd(error ? -1 : ::mkostemp(path.data(), O_CLOEXEC));
  return fd.valid() ? path : "";
}

}  // namespace

NcclLog::NcclLog(NcclLog&& other) noexcept
    : fabric_(std::move(other.fabric_)),
      file_(std::exchange(other.file_, {})),
      is_temporary_(other.is_temporary_),
      note_(std::move(other.note_)) {}

NcclLog::~NcclLog() {
  if (is_temporary_ && !file_.empty()) ::unlink(file_.c_str());
}

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
  log.is_temporary_ = env.run_dir.empty();
  log.file_ = log.is_temporary_ ? MakeTemporaryFile()
                                : env.run_dir / fmt::format("nccl.{}.{}", env.local_rank, ::getpid());
  if (log.file_.empty()) {
    log.note_ +=
        "; no temporary file can be made for NCCL's log, so that a fall-back to TCP is not looked for";
    return log;
  }
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
  if (!text) return {};  // without its log there is nothing to say
  return CheckFabric(fabric_, NcclNetworks(*text));
}

}  // namespace imgd::trainer
