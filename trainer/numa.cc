#include "trainer/numa.h"

#include <linux/mempolicy.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <iterator>

#include "common/files.h"

namespace imgd::trainer {
namespace {

constexpr size_t kMostSysfsBytes = 1 << 16;
constexpr int kMostNodes = 1024;

std::string_view TrimmedLine(std::string_view text) { return text.substr(0, text.find('\n')); }

Result<int> ParseCpuNumber(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    return Fail(ErrorCode::kInvalidArgument, "found '{}' where a number is expected", text);
  }
  return value;
}

}  // namespace

Result<std::vector<int>> ParseCpuList(std::string_view text) {
  text = TrimmedLine(text);
  std::vector<int> out;
  while (!text.empty()) {
    const size_t end = std::min(text.find(','), text.size());
    const std::string_view range = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const size_t dash = range.find('-');
    IMGD_ASSIGN(const int first, ParseCpuNumber(range.substr(0, dash)));
    int last = first;
    if (dash != range.npos) {
      IMGD_ASSIGN(last, ParseCpuNumber(range.substr(dash + 1)));
    }
    if (first < 0 || last < first || last >= CPU_SETSIZE) {
      return Fail(ErrorCode::kInvalidArgument, "'{}' is no range of cores", range);
    }
    for (int core = first; core <= last; ++core) out.push_back(core);
  }
  std::sort(out.begin(), out.end());
  return out;
}

Result<NumaPlace> FindNumaPlace(const std::filesystem::path& sys, const std::string& pci_device,
                                const std::vector<int>& allowed) {
  const auto unknown = [&](std::string_view why) { return Fail(ErrorCode::kNotFound, "{}", why); };
  std::error_code error;
  const auto nodes = sys / "devices/system/node";
  if (!std::filesystem::exists(nodes / "node1", error)) return unknown("the machine has a single NUMA node");
  const auto text = ReadFile(sys / "bus/pci/devices" / pci_device / "numa_node", kMostSysfsBytes);
  if (!text) return unknown(text.error().message);
  const auto node = ParseCpuNumber(TrimmedLine(*text));
  if (!node || *node < 0) return unknown(fmt::format("the machine does not say where {} is", pci_device));
  const auto list = ReadFile(nodes / fmt::format("node{}/cpulist", *node), kMostSysfsBytes);
  if (!list) return unknown(list.error().message);
  const auto cores = ParseCpuList(*list);
  if (!cores) return unknown(cores.error().message);
  NumaPlace place{.node = *node};
  std::set_intersection(cores->begin(), cores->end(), allowed.begin(), allowed.end(),
                        std::back_inserter(place.cores));
  if (place.cores.empty()) return unknown(fmt::format("no core of NUMA node {} may be used", *node));
  return place;
}

std::vector<int> AllowedCores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cores;
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  }
  return cores;
}

Status BindTo(const NumaPlace& place) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int core : place.cores) CPU_SET(core, &set);
  if (::sched_setaffinity(0, sizeof set, &set) != 0) return FailErrno(errno, "cannot bind to cores");
  constexpr size_t kBits = 8 * sizeof(unsigned long);
  std::array<unsigned long, kMostNodes / kBits> mask{};
  if (place.node >= kMostNodes) return {};
  mask[static_cast<size_t>(place.node) / kBits] |= 1UL << (static_cast<size_t>(place.node) % kBits);
  // Where it is forbidden, as in some containers, memory still mostly comes from where the thread runs.
  (void)::syscall(SYS_set_mempolicy, MPOL_PREFERRED, mask.data(), kMostNodes);
  return {};
}

std::optional<int> BindBeside(const std::filesystem::path& sys, const std::string& pci_device, bool wanted,
                              const std::function<void(const std::string&)>& note) {
  if (!wanted || pci_device.empty()) return std::nullopt;
  const auto place = FindNumaPlace(sys, pci_device, AllowedCores());
  if (!place) {
    note(fmt::format("not bound to a NUMA node: {}", place.error().message));
    return std::nullopt;
  }
  if (const auto bound = BindTo(*place); !bound) {
    note(bound.error().message);
    return std::nullopt;
  }
  note(fmt::format("bound to NUMA node {} beside its GPU {}, with {} cores", place->node, pci_device,
                   place->cores.size()));
  return static_cast<int>(place->cores.size());
}

}  // namespace imgd::trainer
