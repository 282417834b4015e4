#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/error.h"

namespace imgd::trainer {

/// The cores and the memory beside a device.
struct NumaPlace {
  int node = 0;
  std::vector<int> cores;  ///< rising; those of the node that are allowed
};

/// Numbers as the kernel lists them: "0-3,8" is 0, 1, 2, 3, 8. Errors: kInvalidArgument.
Result<std::vector<int>> ParseCpuList(std::string_view text);

/// The NUMA node that a PCI device ("0000:3b:00.0") hangs on, with those of its cores that are in `allowed`.
/// `sys` is /sys but in tests. Errors: kNotFound, with the reason, where the machine does not say, has a
/// single node, or none of the node's cores is allowed.
Result<NumaPlace> FindNumaPlace(const std::filesystem::path& sys, const std::string& pci_device,
                                const std::vector<int>& allowed);

/// Cores that the calling thread may run on, rising.
std::vector<int> AllowedCores();

/// Binds the calling thread, and those that it starts from now on, to the place's cores, and prefers its
/// memory for them. Errors: as sched_setaffinity(2).
Status BindTo(const NumaPlace& place);

/// BindTo() for what is beside a PCI device, where that is `wanted` and there is one: `pci_device` is empty
/// on the CPU. `note` is told in a sentence what was bound, or why nothing was; nothing where nothing was to
/// be. Returns how many cores there are; nothing where they stay as they were.
std::optional<int> BindBeside(const std::filesystem::path& sys, const std::string& pci_device, bool wanted,
                              const std::function<void(const std::string&)>& note);

}  // namespace imgd::trainer
