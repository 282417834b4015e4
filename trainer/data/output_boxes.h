#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "trainer/data/dataset.h"
#include "trainer/data/object_box.h"
#include "trainer/data/subset.h"

namespace imgd::data {

/// The boxes of a conversion's images: those that were given for an image, else those that its source has.
class OutputBoxes {
 public:
  /// `subset`: `set`, where it is one. Both must outlive this.
  OutputBoxes(const Dataset& set, const Subset* subset, BoxesOf given);

  /// Those that the source has, by the image's number in the subset's whole, with the labels there.
  void SetSource(std::unordered_map<uint32_t, std::vector<ObjectBox>> boxes) { source_ = std::move(boxes); }

  /// Whether any archive was given, and whether it has this image.
  bool given() const { return given_ != nullptr; }
  bool WereGiven(uint32_t image) const { return given_ && !given_(set_.name(image)).empty(); }
  /// How many images have some in the source.
  uint32_t CountInSource() const;

  std::vector<ObjectBox> Of(uint32_t image) const;

 private:
  uint32_t NumberInSource(uint32_t image) const {
    return subset_ != nullptr ? subset_->number(image) : image;
  }

  const Dataset& set_;
  const Subset* subset_;
  const BoxesOf given_;
  std::unordered_map<uint32_t, std::vector<ObjectBox>> source_;
  std::unordered_map<std::string, int32_t> labels_;  ///< of the subset's classes
};

}  // namespace imgd::data
