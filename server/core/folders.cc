#include "server/core/folders.h"

#include <fmt/format.h>

#include <optional>
#include <string_view>

namespace imgd {
namespace {

bool IsBelow(std::string_view path, std::string_view folder) {
  while (folder.size() > 1 && folder.ends_with('/')) folder.remove_suffix(1);
  return path.starts_with(folder) &&
         (folder == "/" || path.size() == folder.size() || path[folder.size()] == '/');
}

/// The shared folder that the path is in; the deepest where there are several.
const SharedFolder* SharedAbove(const NodeRecord& node, std::string_view path) {
  const SharedFolder* best = nullptr;
  for (const auto& folder : node.shared_folders) {
    if (IsBelow(path, folder.path) && (best == nullptr || folder.path.size() > best->path.size()))
      best = &folder;
  }
  return best;
}

bool SameView(const NodeRecord& a, const NodeRecord& b, std::string_view path) {
  if (!a.filesystem_id.empty() && a.filesystem_id == b.filesystem_id) return true;
  const auto* left = SharedAbove(a, path);
  const auto* right = SharedAbove(b, path);
  return left != nullptr && right != nullptr && !left->id.empty() && left->id == right->id;
}

std::optional<Error> Contradiction(const NodeRecord& a, const NodeRecord& b, std::string_view path) {
  const auto* left = SharedAbove(a, path);
  const auto* right = SharedAbove(b, path);
  if (left == nullptr || right == nullptr || left->path != right->path || left->id == right->id) {
    return std::nullopt;
  }
  return Error{
      .code = ErrorCode::kInvalidArgument,
      .message = fmt::format("checkpoint.dir: nodes {} and {} both declare {} as shared, but it is not the "
                             "same folder on them (its marker differs)",
                             a.id, b.id, left->path),
      .hint = "mount the same file system there on both nodes"};
}

}  // namespace

Result<std::vector<std::string>> CheckFolders(const std::vector<NodeRecord>& nodes, uint32_t gang_nodes,
                                              uint32_t ranks_per_node, const std::string& checkpoint_dir) {
  std::vector<const NodeRecord*> hosts;
  for (const auto& node : nodes) {
    if (node.Connected() && node.devices.size() >= ranks_per_node) hosts.push_back(&node);
  }
  if (hosts.empty()) {
    return std::vector<std::string>{
        fmt::format("no connected node could take the job yet, so it was not checked that its nodes share {}",
                    checkpoint_dir)};
  }
  const NodeRecord* other = nullptr;  // the first that does not see the first host's folder
  for (const auto* host : hosts) {
    if (auto error = Contradiction(*hosts.front(), *host, checkpoint_dir)) return tl::unexpected(*error);
    if (other == nullptr && !SameView(*hosts.front(), *host, checkpoint_dir) && host != hosts.front())
      other = host;
  }
  if (other == nullptr) return std::vector<std::string>{};
  const std::string what = fmt::format("nodes {} and {} do not share the checkpoint folder {}",
                                       hosts.front()->id, other->id, checkpoint_dir);
  if (gang_nodes > 1) {
    return tl::unexpected(Error{
        .code = ErrorCode::kInvalidArgument,
        .message = fmt::format("checkpoint.dir: {}, so the gang could not resume", what),
        .hint = "name a folder that all nodes share, and declare it in agent.yaml under shared_folders"});
  }
  return std::vector<std::string>{
      fmt::format("{}: the job can resume only on the node that it ran on", what)};
}

}  // namespace imgd
