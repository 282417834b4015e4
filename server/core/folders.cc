#include "server/core/folders.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <numeric>
#include <optional>
#include <string_view>
#include <utility>

#include "server/core/first_of.h"
#include "server/core/scheduler.h"

namespace imgd {
namespace {

constexpr std::string_view kBucket = "s3://";

/// Both are normal paths.
bool IsBelow(std::string_view path, std::string_view folder) {
  return path.starts_with(folder) &&
         (folder == "/" || path.size() == folder.size() || path[folder.size()] == '/');
}

/// As NormalPath() would leave it, which is asked of each node's folders in each plan.
bool IsNormal(std::string_view path) {
  if (!path.starts_with('/') || (path.size() > 1 && path.ends_with('/'))) return false;
  for (size_t at = path.find("/."); at != std::string_view::npos; at = path.find("/.", at + 1)) {
    const std::string_view rest = path.substr(at + 1, path.find('/', at + 1) - at - 1);
    if (rest == "." || rest == "..") return false;
  }
  return path.find("//") == std::string_view::npos;
}

/// The shared folder that the normal path is in; the deepest where there are several.
const SharedFolder* SharedAbove(const FolderView& view, const std::string& path) {
  const SharedFolder* best = nullptr;
  for (const auto& folder : view.shared) {
    if (IsBelow(path, folder.path) && (best == nullptr || folder.path.size() > best->path.size()))
      best = &folder;
  }
  return best;
}

std::optional<Error> Contradiction(const NodeRecord& a, const NodeRecord& b, const std::string& path) {
  const auto* left = SharedAbove(*a.folders, path);
  const auto* right = SharedAbove(*b.folders, path);
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

struct HashedId {
  size_t hash = 0;
  std::string_view id;
  bool operator==(const HashedId&) const = default;
  struct Hash {
    size_t operator()(const HashedId& of) const { return of.hash; }
  };
};

/// The number of the group that most are in, and its size. At least one is in one.
std::pair<size_t, size_t> LargestGroup(const std::vector<size_t>& groups) {
  std::vector<size_t> sizes(groups.size());
  for (const size_t group : groups) ++sizes[group];
  const auto largest = std::max_element(sizes.begin(), sizes.end());
  return {largest - sizes.begin(), *largest};
}

}  // namespace

bool IsInBucket(std::string_view path) { return path.starts_with(kBucket); }

std::string NormalPath(std::string_view path) {
  if (IsNormal(path)) return std::string(path);
  if (IsInBucket(path)) return fmt::format("s3:/{}", NormalPath(path.substr(kBucket.size() - 1)));
  std::string normal = std::filesystem::path(path).lexically_normal();
  while (normal.size() > 1 && normal.ends_with('/')) normal.pop_back();
  return normal;
}

FolderView::FolderView(std::string filesystem, std::vector<SharedFolder> folders)
    : filesystem_id(std::move(filesystem)),
      filesystem_hash(std::hash<std::string_view>()(filesystem_id)),
      shared(std::move(folders)) {}

FolderView ViewOf(const NodeRecord& node) {
  auto shared = node.shared_folders;
  for (auto& folder : shared) folder.path = NormalPath(folder.path);
  return {node.filesystem_id, std::move(shared)};
}

std::vector<size_t> FolderGroups(const std::vector<const FolderView*>& nodes, const std::string& path) {
  const std::string normal = NormalPath(path);
  std::vector<size_t> groups(nodes.size());
  std::iota(groups.begin(), groups.end(), 0);
  const auto root_of = [&groups](size_t i) {
    while (groups[i] != i) i = groups[i];
    return i;
  };
  // Two nodes may be tied by their file systems, and one of them to a third by what they share.
  FirstOf<HashedId, HashedId::Hash> filesystems(nodes.size()), shares(nodes.size());
  const auto tie = [&](FirstOf<HashedId, HashedId::Hash>& firsts, HashedId id, size_t i) {
    if (id.id.empty()) return;
    const size_t first = firsts.With(id, i);
    if (first == i) return;
    const size_t a = root_of(first);
    const size_t b = root_of(i);
    groups[std::max(a, b)] = std::min(a, b);
  };
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i] == nullptr) continue;
    tie(filesystems, {nodes[i]->filesystem_hash, nodes[i]->filesystem_id}, i);
    const auto* shared = SharedAbove(*nodes[i], normal);
    if (shared != nullptr) tie(shares, {std::hash<std::string_view>()(shared->id), shared->id}, i);
  }
  for (size_t i = 0; i < groups.size(); ++i) groups[i] = root_of(i);
  return groups;
}

Result<std::vector<std::string>> CheckFolders(const std::vector<NodeRecord>& nodes, uint32_t gang_nodes,
                                              uint32_t ranks_per_node, const Needs& needs,
                                              const std::string& checkpoint_dir) {
  if (IsInBucket(checkpoint_dir)) return std::vector<std::string>{};
  std::vector<const NodeRecord*> hosts;
  std::vector<const FolderView*> seen;
  NodesCheck check(needs);
  hosts.reserve(nodes.size());
  seen.reserve(nodes.size());
  for (const auto& node : nodes) {
    if (!node.Connected() || check.Of(NodeSort{node.kind.get(), node.devices.size()}).room < ranks_per_node)
      continue;
    hosts.push_back(&node);
    seen.push_back(node.folders.get());
  }
  if (hosts.empty()) {
    return std::vector<std::string>{
        fmt::format("no connected node could take the job yet, so it was not checked that its nodes share {}",
                    checkpoint_dir)};
  }
  const auto groups = FolderGroups(seen, checkpoint_dir);
  const auto [group, size] = LargestGroup(groups);
  if (size == hosts.size()) return std::vector<std::string>{};
  const auto member = std::find(groups.begin(), groups.end(), group) - groups.begin();
  const auto other =
      std::find_if(groups.begin(), groups.end(), [group](size_t g) { return g != group; }) - groups.begin();
  const NodeRecord& first = *hosts[static_cast<size_t>(std::min(member, other))];
  const NodeRecord& second = *hosts[static_cast<size_t>(std::max(member, other))];
  const bool enough = gang_nodes > 1 && size >= gang_nodes;
  const std::string path = NormalPath(checkpoint_dir);
  for (size_t i = 1; i < hosts.size() && !enough; ++i) {
    if (auto contradiction = Contradiction(*hosts.front(), *hosts[i], path))
      return tl::unexpected(std::move(*contradiction));
  }
  const std::string what = fmt::format("nodes {} and {} do not share the checkpoint folder {}", first.id,
                                       second.id, checkpoint_dir);
  if (enough) {
    return std::vector<std::string>{fmt::format(
        "{}: the job is placed only on nodes that share it, which {} of {} do", what, size, hosts.size())};
  }
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
