#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/core/bit_set.h"
#include "server/core/needs.h"
#include "server/core/scheduler.h"
#include "server/core/shared.h"

namespace imgd {

/// What a plan asks of nodes whatever they hold: which see the same folder, which do for a gang, which are
/// close to each other. Found when it is first asked for and kept, so that one plan after the other has it
/// while the nodes stay as they are. For one thread at a time.
class Layout {
 public:
  /// For each node the number of its group, which is the place of the group's first node: all of one see the
  /// same folder. One group where it does not matter.
  using Groups = std::vector<size_t>;
  using Judged = NodesCheck::Judged;
  /// Of a node that says nothing; such come last.
  static constexpr uint32_t kNoLabel = std::numeric_limits<uint32_t>::max();
  /// Of a node, by its topology: the number of each label, or kNoLabel.
  using LabelNumbers = std::array<uint32_t, kTopology.size()>;

  /// Nodes that see the same folder and have a device that does, by their places in the list.
  struct Members {
    std::vector<uint32_t> nodes;
    std::vector<uint32_t> by_size;  ///< how many have so many devices that do
    /// How many there are, by devices that do, and by all that a node has.
    using Counts = std::map<std::pair<uint32_t, size_t>, uint32_t>;
    Counts sound;  ///< of those that are not lost
    Counts lost;   ///< of the others
  };
  /// All nodes as gangs see them that share a folder and ask for the same of nodes and devices, whether they
  /// want whole nodes or not.
  struct Frame {
    Shared<Groups> grouped;
    std::shared_ptr<const std::vector<Judged>> judged;  ///< for each sort
    std::vector<uint32_t> group_of;                     ///< for each node
    std::vector<uint32_t> place_of;                     ///< among the group's members, for each of them
    std::vector<Members> groups;
    bool asked = true;  ///< since ForgetUnasked()
    /// Nodes with so many devices that do, and no more than so many in all; those that were asked for.
    mutable std::map<std::pair<uint32_t, uint32_t>, BitSet> nodes_for;
  };

  /// `nodes`: by name.
  explicit Layout(const std::vector<NodeSlots>& nodes);
  /// One made of these would be the same.
  bool IsOf(const std::vector<NodeSlots>& nodes) const;
  /// What was not asked for since the last time; nobody may have any of it.
  void ForgetUnasked();

  size_t nodes() const { return rows_.size(); }
  /// Devices are numbered through all nodes: the number of the node's first one, and how many it has.
  size_t FirstOf(uint32_t node) const { return first_[node]; }
  size_t DevicesOf(uint32_t node) const { return first_[node + 1] - first_[node]; }

  const NodeSorts& sorts() const { return sorts_; }
  /// What nodes of each sort have for a gang of these needs.
  std::shared_ptr<const std::vector<Judged>> Judge(Needs needs);

  /// One for all folders that group nodes alike. `folder`: empty where it does not matter. Lives as long as
  /// somebody asks for it.
  const Shared<Groups>& GroupsFor(const std::string& folder);
  /// Lives as long as somebody asks for it.
  const Frame& FrameFor(const std::string& folder, const Needs& needs);
  /// Nodes of a frame that could have so many ranks, of at most `most` devices, whatever is free there. Lives
  /// as long as the frame.
  const BitSet& NodesFor(const Frame& frame, uint32_t ranks, uint32_t most) const;
  const Judged& JudgedOf(const Frame& frame, uint32_t node) const { return (*frame.judged)[sorts_.of[node]]; }

  /// Call it before the two below.
  void NumberLabels();
  bool has_numbers() const { return !labels_.empty(); }
  const LabelNumbers& LabelsOf(uint32_t node) const { return labels_[sorts_.of[node]]; }
  /// How many values there are of a label, by its place in the topology.
  uint32_t LabelCount(size_t level) const { return label_counts_[level]; }

 private:
  /// All that it knows of a node.
  struct Row {
    explicit Row(const NodeSlots& node)
        : kind(node.kind), folders(node.folders), devices(node.devices.size()), lost(node.lost) {}
    bool IsOf(const NodeSlots& node) const;
    NodeSort Sort() const { return {kind.get(), devices}; }
    std::shared_ptr<const NodeKind> kind;
    std::shared_ptr<const FolderView> folders;
    size_t devices;
    bool lost;
  };
  struct KnownGroups {
    Shared<Groups> groups;
    bool asked = true;
  };
  Frame MakeFrame(const Shared<Groups>& groups, const Needs& needs);

  std::vector<Row> rows_;      ///< of each node
  std::vector<size_t> first_;  ///< number of each node's first device; at the end how many there are
  NodeSorts sorts_;
  std::vector<LabelNumbers> labels_;  ///< of each sort; empty until NumberLabels()
  std::array<uint32_t, kTopology.size()> label_counts_{};
  OneOfEach<Groups> one_of_each_;
  std::map<std::string, KnownGroups> groups_;  ///< by folder
  // Whether a gang wants whole nodes does not matter to these: it is false in all of their keys.
  std::map<Needs, std::shared_ptr<const std::vector<Judged>>> judged_;
  std::map<std::pair<const Groups*, Needs>, Frame> frames_;
};

/// `memory`, where it is a layout of these nodes, without what the last plan had no use for; else a new one,
/// which it is from now on.
std::shared_ptr<Layout> LayoutFrom(std::shared_ptr<Layout>& memory, const std::vector<NodeSlots>& nodes);

}  // namespace imgd
