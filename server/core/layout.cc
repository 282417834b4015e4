#include "server/core/layout.h"

#include <algorithm>
#include <iterator>
#include <set>

namespace imgd {

Layout::Layout(const std::vector<NodeSlots>& nodes) : rows_(nodes.begin(), nodes.end()), sorts_(nodes) {
  first_.reserve(nodes.size() + 1);
  size_t next = 0;
  for (const Row& row : rows_) first_.push_back(std::exchange(next, next + row.devices));
  first_.push_back(next);
}

bool Layout::Row::IsOf(const NodeSlots& node) const {
  return kind == node.kind && folders == node.folders && devices == node.devices.size() && lost == node.lost;
}

bool Layout::IsOf(const std::vector<NodeSlots>& nodes) const {
  return std::equal(rows_.begin(), rows_.end(), nodes.begin(), nodes.end(),
                    [](const Row& row, const NodeSlots& node) { return row.IsOf(node); });
}

void Layout::ForgetUnasked() {
  const auto forget = [](auto& known) {
    for (auto one = known.begin(); one != known.end();)
      one = std::exchange(one->second.asked, false) ? std::next(one) : known.erase(one);
  };
  forget(frames_);
  forget(groups_);
  std::erase_if(judged_, [](const auto& judged) { return judged.second.use_count() == 1; });
}

auto Layout::GroupsFor(const std::string& folder) -> const Shared<Groups>& {
  const auto [known, is_new] = groups_.try_emplace(folder);
  auto& [groups, asked] = known->second;
  asked = true;
  if (!is_new) return groups;
  Groups found(rows_.size(), 0);
  if (!folder.empty()) {
    std::vector<const FolderView*> views;
    views.reserve(rows_.size());
    for (const Row& row : rows_) views.push_back(row.folders.get());
    found = FolderGroups(views, folder);
  }
  return groups = one_of_each_.Of(std::move(found));
}

auto Layout::FrameFor(const std::string& folder, const Needs& needs) -> const Frame& {
  const Shared<Groups>& groups = GroupsFor(folder);
  std::pair key(groups.place(), needs);
  key.second.whole_nodes = false;
  auto known = frames_.find(key);
  if (known == frames_.end()) known = frames_.emplace(key, MakeFrame(groups, key.second)).first;
  known->second.asked = true;
  return known->second;
}

auto Layout::MakeFrame(const Shared<Groups>& groups, const Needs& needs) -> Frame {
  Frame frame{.grouped = groups, .judged = Judge(needs)};
  frame.group_of.resize(rows_.size());
  frame.place_of.resize(rows_.size());
  const Groups& roots = *groups;
  for (uint32_t i = 0; i < rows_.size(); ++i) {
    // The first node of a group is its root.
    if (roots[i] == i) {
      frame.group_of[i] = static_cast<uint32_t>(frame.groups.size());
      frame.groups.emplace_back();
    } else {
      frame.group_of[i] = frame.group_of[roots[i]];
    }
    const uint32_t room = JudgedOf(frame, i).room;
    if (room == 0) continue;
    Members& members = frame.groups[frame.group_of[i]];
    frame.place_of[i] = static_cast<uint32_t>(members.nodes.size());
    members.nodes.push_back(i);
    if (members.by_size.size() <= room) members.by_size.resize(room + 1);
    ++members.by_size[room];
    ++(rows_[i].lost ? members.lost : members.sound)[{room, rows_[i].devices}];
  }
  return frame;
}

const BitSet& Layout::NodesFor(const Frame& frame, uint32_t ranks, uint32_t most) const {
  const auto [known, is_new] = frame.nodes_for.try_emplace({ranks, most});
  for (uint32_t i = 0; is_new && i < rows_.size(); ++i) {
    if (JudgedOf(frame, i).room >= std::max(ranks, 1U) && rows_[i].devices <= most) known->second.Insert(i);
  }
  return known->second;
}

auto Layout::Judge(Needs needs) -> std::shared_ptr<const std::vector<Judged>> {
  needs.whole_nodes = false;
  auto& judged = judged_[needs];
  if (judged) return judged;
  NodesCheck check(needs);
  std::vector<Judged> out;
  out.reserve(sorts_.examples.size());
  for (const uint32_t example : sorts_.examples) out.push_back(check.Judge(rows_[example].Sort()));
  return judged = std::make_shared<const std::vector<Judged>>(std::move(out));
}

void Layout::NumberLabels() {
  if (has_numbers()) return;
  static_assert(kTopology.size() == 3);
  labels_.assign(sorts_.examples.size(), {kNoLabel, kNoLabel, kNoLabel});
  for (size_t level = 0; level < kTopology.size(); ++level) {
    std::map<std::string, uint32_t> numbers;
    for (size_t sort = 0; sort < labels_.size(); ++sort) {
      const auto& kind = rows_[sorts_.examples[sort]].kind;
      if (!kind || kind->labels.empty()) continue;
      const auto label = kind->labels.find(kTopology[level]);
      if (label == kind->labels.end()) continue;
      labels_[sort][level] =
          numbers.try_emplace(label->second, static_cast<uint32_t>(numbers.size())).first->second;
    }
    label_counts_[level] = static_cast<uint32_t>(numbers.size());
  }
}

std::shared_ptr<Layout> LayoutFrom(std::shared_ptr<Layout>& memory, const std::vector<NodeSlots>& nodes) {
  if (memory && memory->IsOf(nodes)) {
    memory->ForgetUnasked();
  } else {
    memory = std::make_shared<Layout>(nodes);
  }
  return memory;
}

}  // namespace imgd
