#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/error.h"
#include "server/core/types.h"

namespace imgd {

/// Whether it is an address in S3, "s3://bucket/prefix", which all nodes see.
bool IsInBucket(std::string_view path);

/// The path without "." and ".." and doubled or trailing slashes, as text: no link is followed. Of an address
/// in S3 what follows "s3:/".
std::string NormalPath(std::string_view path);

/// What a node sees of the file systems, as far as it said.
struct FolderView {
  FolderView(std::string filesystem, std::vector<SharedFolder> folders);
  const std::string filesystem_id;
  const size_t filesystem_hash;            ///< std::hash() of it, which each plan asks for
  const std::vector<SharedFolder> shared;  ///< with normal paths
};
FolderView ViewOf(const NodeRecord& node);

/// For each of the nodes a number that is equal for those that see one and the same folder at `path`: their
/// file systems are the same, or the folder is below one that they share by the same id. It is the place of
/// the first of them. Null: nobody knows what the node sees.
std::vector<size_t> FolderGroups(const std::vector<const FolderView*>& nodes, const std::string& path);

/// Whether enough of the nodes that could host a gang, by what they are and not by what is free, see one and
/// the same checkpoint folder; the scheduler places the gang on such nodes only. `nodes`: as the core has
/// them, each with its `kind` and `folders`. Returns warnings, one sentence each.
/// Errors: kInvalidArgument where the job could not resume: too few nodes for the gang share the folder, or
/// nodes that could host a job of one node declare different folders at the same path.
Result<std::vector<std::string>> CheckFolders(const std::vector<NodeRecord>& nodes, uint32_t gang_nodes,
                                              uint32_t ranks_per_node, const Needs& needs,
                                              const std::string& checkpoint_dir);

}  // namespace imgd
