#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "common/error.h"

namespace imgd::data {

/// Where an object is in an image, in its pixels: left and top edge are within, right and bottom just past
/// it.
struct BoundingBox {
  int32_t xmin = 0;
  int32_t ymin = 0;
  int32_t xmax = 0;
  int32_t ymax = 0;
  std::string wnid;  ///< class of the object
  bool operator==(const BoundingBox&) const = default;
};

/// All of one image. Boxes lie within it, and have an area.
struct ImageBoxes {
  int32_t width = 0;  ///< of the image that was annotated
  int32_t height = 0;
  std::vector<BoundingBox> boxes;
  bool operator==(const ImageBoxes&) const = default;
};

/// Reads one annotation of PASCAL VOC's form: annotation/size/{width,height} and annotation/object/{name,
/// bndbox/{xmin,ymin,xmax,ymax}}. Edges the wrong way round are turned, those outside the image moved to its
/// edge, and boxes without an area left out. Errors: kDataLoss saying what can't be read.
Result<ImageBoxes> ParseAnnotation(std::string_view xml);

/// The bounding boxes of a data set by the images' names.
class BoundingBoxes {
 public:
  /// Reads ILSVRC2012_bbox_train_v2.tar.gz, ILSVRC2012_bbox_val_v3.tgz and their like: tars of XML files,
  /// packed by gzip or not, with tars in them or not; nothing is unpacked to disk. An XML file that can't be
  /// read is passed over and counted. Errors: those of the archive; kDataLoss when it has no annotation at
  /// all.
  static Result<BoundingBoxes> Read(const std::string& archive);

  /// Those of an image, by its name with or without folder and ending ("n01440764/n01440764_10040.JPEG");
  /// nullptr where there are none.
  const ImageBoxes* Find(std::string_view image) const;

  size_t images() const { return images_.size(); }
  size_t boxes() const { return boxes_; }
  /// Files that could not be read, and why, for the first of them.
  size_t bad_files() const { return bad_files_; }
  const std::vector<std::string>& bad_examples() const { return bad_examples_; }

 private:
  Status ReadTar(const class Source& archive, int depth);
  Status Take(const Source& archive, const struct TarEntry& entry);

  std::unordered_map<std::string, ImageBoxes> images_;  ///< by name without folder and ending
  size_t boxes_ = 0;
  size_t bad_files_ = 0;
  std::vector<std::string> bad_examples_;
};

}  // namespace imgd::data
