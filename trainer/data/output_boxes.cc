#include "trainer/data/output_boxes.h"

namespace imgd::data {

OutputBoxes::OutputBoxes(const Dataset& set, const Subset* subset, BoxesOf given)
    : set_(set), subset_(subset), given_(std::move(given)) {
  if (subset == nullptr) return;
  for (const auto& name : set.classes()) labels_.emplace(name, static_cast<int32_t>(labels_.size()));
}

uint32_t OutputBoxes::CountInSource() const {
  uint32_t count = 0;
  if (source_.empty()) return count;
  for (uint32_t i = 0; i < set_.size(); ++i) count += source_.contains(NumberInSource(i)) ? 1 : 0;
  return count;
}

std::vector<ObjectBox> OutputBoxes::Of(uint32_t image) const {
  if (given_) {
    if (auto boxes = given_(set_.name(image)); !boxes.empty()) return boxes;
  }
  const auto found = source_.find(NumberInSource(image));
  if (found == source_.end()) return {};
  auto boxes = found->second;
  for (auto& box : boxes) {
    if (subset_ == nullptr || box.label < 0) continue;
    const auto label = labels_.find(subset_->whole().classes()[static_cast<size_t>(box.label)]);
    box.label = label != labels_.end() ? label->second : -1;
  }
  return boxes;
}

}  // namespace imgd::data
