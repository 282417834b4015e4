#pragma once

#include <string>
#include <vector>

#include "common/error.h"
#include "server/core/types.h"

namespace imgd {

/// Whether the nodes that could host a gang see one and the same checkpoint folder: their file systems are
/// the same, or the folder is below one that they share by the same id. Returns warnings, one sentence each.
/// Errors: kInvalidArgument where the job could not resume: a gang over nodes that do not share the folder,
/// or nodes that declare different folders at the same path.
Result<std::vector<std::string>> CheckFolders(const std::vector<NodeRecord>& nodes, uint32_t gang_nodes,
                                              uint32_t ranks_per_node, const std::string& checkpoint_dir);

}  // namespace imgd
