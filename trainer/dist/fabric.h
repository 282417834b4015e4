#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/error.h"

namespace imgd::trainer {

/// What this machine has for fast traffic between nodes.
struct Fabric {
  std::vector<std::string> devices;  ///< RDMA devices, sorted: "mlx5_0", "rdmap16s27"
  bool efa = false;                  ///< some of them are EFA's, which NCCL needs a plugin for
  std::string plugin;                ///< NCCL's network plugin (aws-ofi-nccl); empty where none is found

  bool fast() const { return !devices.empty(); }
  /// "4 RDMA devices (rdmap16s27, ...), EFA, plugin /opt/amazon/ofi-nccl/lib/libnccl-net.so"; "no RDMA
  /// devices".
  std::string ToString() const;
};

/// Looks in sysfs, in the folders that Amazon's installers use, and in `library_path` (as LD_LIBRARY_PATH).
/// `root` is what all absolute paths of the machine's own are below; "/" but in tests.
Fabric FindFabric(const std::filesystem::path& root, std::string_view library_path);

/// The networks that NCCL says in its log (NCCL_DEBUG=INFO) it uses between nodes, each once, in their order:
/// "Socket", "IB", "AWS Libfabric". Empty where it says none.
std::vector<std::string> NcclNetworks(std::string_view log);

/// Whether NCCL took what the machine has. Errors: kFailedPrecondition where there is a fast fabric and
/// NCCL's log says that it uses TCP sockets; what to do is in it.
Status CheckFabric(const Fabric& fabric, const std::vector<std::string>& networks);

}  // namespace imgd::trainer
