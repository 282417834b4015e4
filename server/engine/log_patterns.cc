#include "server/engine/log_patterns.h"

#include <re2/re2.h>
#include <re2/set.h>
#include <spdlog/spdlog.h>

#include <algorithm>

namespace imgd {
namespace {

/// What is shown of a line.
constexpr size_t kMostShownBytes = 300;
/// What is looked at of a line.
constexpr size_t kMostMatchedBytes = 4096;

RE2::Options OptionsForLines() {
  RE2::Options options;
  options.set_log_errors(false);
  options.set_max_mem(16 << 20);
  return options;
}

/// At most so many bytes of it, and whole characters of UTF-8.
std::string Cut(std::string_view line, size_t most) {
  if (line.size() <= most) return std::string(line);
  while (most > 0 && (static_cast<unsigned char>(line[most]) & 0xC0) == 0x80) --most;
  return std::string(line.substr(0, most)) + "...";
}

std::vector<LogPattern> MakeBuiltIn() {
  using enum PatternAction;
  const auto broken = [](const char* name, const char* match, const char* label) {
    return LogPattern{.name = name, .match = match, .action = kExcludeNode, .label = label, .gpu = true};
  };
  const auto label = [](const char* name, const char* match, const char* text) {
    return LogPattern{.name = name, .match = match, .action = kLabel, .label = text};
  };
  const auto retry = [](const char* name, const char* match, const char* text) {
    return LogPattern{.name = name, .match = match, .action = kRetry, .label = text};
  };
  const auto collective = [](const char* name, const char* match, const char* text) {
    return LogPattern{.name = name, .match = match, .action = kRetry, .label = text, .collective = true};
  };
  return {
      // The node's GPUs, or its driver, are broken.
      broken("ecc",
             R"(uncorrectable ECC error encountered|CUDA_ERROR_ECC_UNCORRECTABLE|cudaErrorECCUncorrectable)",
             "the memory of a GPU is broken"),
      broken("nvlink", R"(uncorrectable NVLink error detected|CUDA_ERROR_NVLINK_UNCORRECTABLE)",
             "a link between GPUs is broken"),
      // Of Xids those that tell of the hardware or the driver, not of the program (NVIDIA, "Xid Errors").
      broken(
          "xid",
          R"(Xid \(PCI:[0-9A-Fa-f:.]+\): ((46|48|61|62|64|74|79|92|94|95|110|119|120|140|143)\b|(14[4-9]|150), \w+ Fatal))",
          "the driver reports a broken GPU"),
      broken(
          "gpu-lost",
          R"(fallen off the bus|GPU_IS_LOST|GPU is lost\.|Unable to determine the device handle for (GPU|gpu)|)"
          R"(CUDA_ERROR_DEVICE_UNAVAILABLE|CUDA-capable (devices are|device\(s\) is/are) busy or unavailable)",
          "a GPU does not answer"),
      broken(
          "gpu-driver",
          R"([Dd]river/library version mismatch|)"
          R"([Ss]ystem not yet initialized|CUDA driver initialization failed|CUDA unknown error - this may be)",
          "the GPUs' driver, or its fabric manager, does not work"),
      // As a rule it is the program that is too new, whatever node it is on.
      label("cuda-version",
            R"(CUDA driver version is insufficient for CUDA runtime version|)"
            R"(NVIDIA driver on your system is too old)",
            "the program's CUDA is newer than the driver"),
      // What is full.
      label("cuda-oom",
            R"(CUDA out of memory|CUDA error: out of memory|torch\.(cuda\.)?OutOfMemoryError|)"
            R"(CU(BLAS|DNN)_STATUS_ALLOC_FAILED|CUDA_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation|)"
            R"(Cuda failure (\d+ )?'out of memory')",
            "the GPU's memory is full: a smaller batch may fit"),
      label(
          "shm",
          R"(insufficient shared memory|posix_fallocate failed|failed to extend /dev/shm/|killed by signal: Bus error|[Ee]rror while creating shared memory segment|)"
          R"(unable to (write to file|open shared memory object|mmap \d+ bytes from file) </torch_|)"
          R"((/dev/shm.*No space left on device|No space left on device.*/dev/shm))",
          "/dev/shm is full"),
      label(
          "host-oom",
          R"(Out of memory: Killed process \d|oom-kill:constraint=|oom_reaper: reaped process|)"
          R"([Dd]efaultCPUAllocator: (can't|not enough memory)|std::bad_alloc|[Cc]annot allocate memory|)"
          R"(^MemoryError\b|DataLoader worker \(pid.*killed by signal: Killed|[Dd]etected \d+ oom[-_]kill event)",
          "the machine's memory is full"),
      retry("disk-full", R"(No space left on device|[Dd]isk quota exceeded|\bENOSPC\b|\bEDQUOT\b)",
            "a disk is full"),
      retry(
          "file-system",
          R"(Stale file handle|Transport endpoint is not connected|Read-only file system|Input/output error)",
          "a disk or a shared folder does not work"),
      // The program's own, as a rule.
      label("cuda-assert", R"(device-side assert triggered|Assertion `.*` failed\.$)",
            "an index or a label is out of range"),
      label("cuda-fault",
            R"(illegal memory access was encountered|illegal instruction was encountered|misaligned address|)"
            R"(unspecified launch failure|CUDA_ERROR_(LAUNCH_FAILED|ILLEGAL_ADDRESS|ASSERT)|)"
            R"(CUBLAS_STATUS_EXECUTION_FAILED|CUDNN_STATUS_(EXECUTION_FAILED|INTERNAL_ERROR|MAPPING_ERROR))",
            "a kernel failed on the GPU"),
      // Collectives, which mostly break because something else has.
      collective(
          "nccl-ib",
          R"(NET/IBP? ?: ?.*([Gg]ot completion .*(error|status=)|[Aa]sync (fatal )?event ?: ?(port error|local|)"
          R"(.*fatal)))",
          "the InfiniBand network failed"),
      collective(
          "nccl-timeout",
          R"([Ww]atchdog caught collective operation timeout|Caught collective operation timeout: WorkNCCL|)"
          R"(Timed out waiting \d+ms for (send|recv) operation to complete)",
          "a collective took too long"),
      collective(
          "nccl",
          R"(ncclSystemError|ncclRemoteError|ncclInternalError|ncclUnhandledCudaError|unhandled system error|)"
          R"(unhandled cuda error|NCCL communicator (was aborted|encountered error)|)"
          R"(NCCL WARN .*([Cc]onnection (refused|closed by|reset)|Call to .* failed|Connect to .* failed)|)"
          R"([Rr]emote process (has )?(exited|terminated)|Connection closed by (remote )?peer)",
          "a collective failed"),
  };
}

/// The operator's pattern with the name of a built-in one.
LogPattern InPlaceOf(const LogPattern& built_in, LogPattern own) {
  if (own.match.empty()) {
    own.match = built_in.match;
    if (own.label.empty()) own.label = built_in.label;
  }
  own.collective = built_in.collective;
  own.gpu = built_in.gpu;
  return own;
}

}  // namespace

const std::vector<LogPattern>& BuiltInPatterns() {
  static const std::vector<LogPattern> patterns = MakeBuiltIn();
  return patterns;
}

std::vector<LogPattern> AllPatterns(std::vector<LogPattern> own, bool built_in) {
  std::vector<LogPattern> known;
  for (const auto& pattern : BuiltInPatterns()) {
    const auto same = std::find_if(
        own.begin(), own.end(), [&pattern](const LogPattern& other) { return other.name == pattern.name; });
    if (same != own.end()) {
      known.push_back(InPlaceOf(pattern, std::move(*same)));
      own.erase(same);
    } else if (built_in) {
      known.push_back(pattern);
    }
  }
  std::vector<LogPattern> all = std::move(own);
  all.insert(all.end(), known.begin(), known.end());
  std::erase_if(all, [](const LogPattern& pattern) { return pattern.ignored; });
  return all;
}

std::string WhyNoPattern(const std::string& match) {
  const RE2 expression(match, OptionsForLines());
  if (!expression.ok()) return expression.error();
  if (RE2::PartialMatch("", expression)) return "it matches every line, also an empty one";
  return "";
}

struct LogMatcher::Compiled {
  RE2::Set set{OptionsForLines(), RE2::UNANCHORED};
};

LogMatcher::LogMatcher(std::vector<LogPattern> patterns)
    : patterns_(std::move(patterns)), compiled_(std::make_unique<Compiled>()) {
  for (const auto& pattern : patterns_) {
    std::string error;
    if (compiled_->set.Add(pattern.match, &error) < 0)
      spdlog::error("pattern={} msg=\"no log pattern: {}\"", pattern.name, error);
  }
  if (!compiled_->set.Compile()) {
    spdlog::error("msg=\"the log patterns take too much memory; none is used\"");
    compiled_.reset();
  }
}

LogMatcher::~LogMatcher() = default;

std::optional<LogMatch> LogMatcher::Find(const std::vector<std::string>& lines, bool on_gpu) const {
  if (compiled_ == nullptr || patterns_.empty()) return std::nullopt;
  size_t best = patterns_.size();
  std::string_view found;
  std::vector<int> matched;
  for (const std::string_view line : lines) {
    const std::string_view looked_at = line.substr(0, kMostMatchedBytes);
    if (!compiled_->set.Match({looked_at.data(), looked_at.size()}, &matched)) continue;
    for (const int index : matched) {
      const auto number = static_cast<size_t>(index);
      if (number >= best || (patterns_[number].gpu && !on_gpu)) continue;
      best = number;
      found = line;
    }
  }
  if (best == patterns_.size()) return std::nullopt;
  const LogPattern& pattern = patterns_[best];
  return LogMatch{.pattern = pattern.name,
                  .label = pattern.label,
                  .line = Cut(found, kMostShownBytes),
                  .action = pattern.action,
                  .collective = pattern.collective,
                  .place = static_cast<uint32_t>(best)};
}

std::optional<LogMatch> LogMatcher::FindIn(std::string_view text, bool on_gpu) const {
  std::vector<std::string> lines;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    lines.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return Find(lines, on_gpu);
}

}  // namespace imgd
