#include "trainer/data/bounding_boxes.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "trainer/data/inflate.h"
#include "trainer/data/source.h"
#include "trainer/data/tar.h"

namespace imgd::data {
namespace {

constexpr uint64_t kMostXmlBytes = 1 << 20;
constexpr size_t kMostXmlDepth = 16;
constexpr size_t kMostNameBytes = 256;  ///< of an element
constexpr size_t kMostBoxesOfAnImage = 10'000;
constexpr size_t kMostImages = 5'000'000;
constexpr size_t kMostBoxes = 20'000'000;
constexpr size_t kExamples = 5;
constexpr int32_t kMostSide = 1'000'000;  ///< pixels

/// Goes through the elements of an XML document, as far as annotations need it: no attributes, no entities,
/// no namespaces; comments, declarations and processing instructions are passed over.
class XmlReader {
 public:
  explicit XmlReader(std::string_view text) : rest_(text) {}

  /// The next start or end of an element; false at the document's end. Errors: kDataLoss.
  Result<bool> Next() {
    for (;;) {
      const size_t open = std::min(rest_.find('<'), rest_.size());
      text_ = rest_.substr(0, open);
      rest_.remove_prefix(open);
      if (rest_.empty()) return path_.empty() ? Result<bool>(false) : Bad("it ends within an element");
      if (rest_.starts_with("<!--")) {
        IMGD_TRY(PassOver("-->"));
      } else if (rest_.starts_with("<?") || rest_.starts_with("<!")) {
        IMGD_TRY(PassOver(">"));
      } else {
        IMGD_TRY(TakeTag());
        return true;
      }
    }
  }

  /// "annotation/object/name" at the start and at the end of that element.
  const std::string& path() const { return path_at_tag_; }
  bool is_end() const { return is_end_; }
  /// At an end: what stood before it, without the space around it.
  std::string_view text() const {
    constexpr std::string_view kSpace = " \t\r\n";
    const size_t first = std::min(text_.find_first_not_of(kSpace), text_.size());
    const size_t last = text_.find_last_not_of(kSpace);
    return last == std::string_view::npos ? std::string_view() : text_.substr(first, last + 1 - first);
  }

 private:
  static tl::unexpected<Error> Bad(std::string_view what) {
    return Fail(ErrorCode::kDataLoss, "no good XML: {}", what);
  }

  Status PassOver(std::string_view end) {
    const size_t at = rest_.find(end);
    if (at == std::string_view::npos) return Bad("it ends within a comment or declaration");
    rest_.remove_prefix(at + end.size());
    return {};
  }

  Status TakeTag() {
    const size_t close = rest_.find('>');
    if (close == std::string_view::npos) return Bad("it ends within a tag");
    std::string_view tag = rest_.substr(1, close - 1);
    rest_.remove_prefix(close + 1);
    is_end_ = tag.starts_with('/');
    if (is_end_) tag.remove_prefix(1);
    const bool is_empty = !is_end_ && tag.ends_with('/');
    const std::string_view name = tag.substr(0, tag.find_first_of(" \t\r\n/"));
    if (name.empty() || name.size() > kMostNameBytes) return Bad("a tag without a name");
    if (is_end_) {
      if (open_.empty() || std::string_view(path_).substr(open_.back()) != name)
        return Bad(fmt::format("</{}> where it was not opened", name.substr(0, 40)));
      path_at_tag_ = path_;
      path_.resize(open_.back() == 0 ? 0 : open_.back() - 1);
      open_.pop_back();
      return {};
    }
    if (open_.size() == kMostXmlDepth) return Bad(fmt::format("elements more than {} deep", kMostXmlDepth));
    path_at_tag_ = path_.empty() ? std::string(name) : fmt::format("{}/{}", path_, name);
    if (is_empty) return {};
    open_.push_back(path_at_tag_.size() - name.size());
    path_ = path_at_tag_;
    return {};
  }

  std::string_view rest_;
  std::string_view text_;
  std::string path_;
  std::vector<size_t> open_;  ///< where in path_ the open elements' names begin
  std::string path_at_tag_;
  bool is_end_ = false;
};

/// A number of pixels, which some programs write as 12.0.
std::optional<int32_t> PixelsOf(std::string_view text) {
  double value = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || parsed.ec != std::errc() || parsed.ptr != text.data() + text.size())
    return std::nullopt;
  if (!(std::abs(value) <= kMostSide)) return std::nullopt;
  return static_cast<int32_t>(std::lround(value));
}

/// Turned and moved so that it lies within the image.
void MoveInto(const ImageBoxes& image, BoundingBox& box) {
  if (box.xmin > box.xmax) std::swap(box.xmin, box.xmax);
  if (box.ymin > box.ymax) std::swap(box.ymin, box.ymax);
  box.xmin = std::clamp(box.xmin, 0, image.width);
  box.xmax = std::clamp(box.xmax, 0, image.width);
  box.ymin = std::clamp(box.ymin, 0, image.height);
  box.ymax = std::clamp(box.ymax, 0, image.height);
}

/// Takes the text of an element that has just ended. False for a number that is none.
bool TakeValue(std::string_view path, std::string_view text, ImageBoxes& image, BoundingBox& box) {
  struct Number {
    std::string_view path;
    int32_t& target;
  };
  const Number numbers[] = {
      {"annotation/size/width", image.width},      {"annotation/size/height", image.height},
      {"annotation/object/bndbox/xmin", box.xmin}, {"annotation/object/bndbox/ymin", box.ymin},
      {"annotation/object/bndbox/xmax", box.xmax}, {"annotation/object/bndbox/ymax", box.ymax}};
  if (path == "annotation/object/name") box.wnid = std::string(text.substr(0, 100));
  for (const auto& number : numbers) {
    if (path != number.path) continue;
    const auto value = PixelsOf(text);
    if (!value) return false;
    number.target = *value;
  }
  return true;
}

std::string_view NameOf(std::string_view path) {
  path = path.substr(path.rfind('/') + 1);
  return path.substr(0, path.rfind('.'));
}

}  // namespace

Result<ImageBoxes> ParseAnnotation(std::string_view xml) {
  ImageBoxes image;
  BoundingBox box;
  bool has_corners = false;
  XmlReader reader(xml);
  for (;;) {
    IMGD_ASSIGN(const bool more, reader.Next());
    if (!more) break;
    const std::string& path = reader.path();
    if (!reader.is_end()) {
      if (path == "annotation/object") box = {};
      if (path == "annotation/object") has_corners = false;
      continue;
    }
    if (!TakeValue(path, reader.text(), image, box)) {
      return Fail(ErrorCode::kDataLoss, "{}: found '{}' where a number of pixels is expected", path,
                  reader.text().substr(0, 40));
    }
    if (path == "annotation/object/bndbox") has_corners = true;
    if (path != "annotation/object" || !has_corners) continue;
    if (image.boxes.size() == kMostBoxesOfAnImage)
      return Fail(ErrorCode::kDataLoss, "more than {} objects", kMostBoxesOfAnImage);
    image.boxes.push_back(box);
  }
  if (image.width <= 0 || image.height <= 0)
    return Fail(ErrorCode::kDataLoss, "no annotation/size with the width and height of the image");
  for (auto& one : image.boxes) MoveInto(image, one);
  std::erase_if(image.boxes, [](const auto& one) { return one.xmin >= one.xmax || one.ymin >= one.ymax; });
  return image;
}

Status BoundingBoxes::Take(const Source& archive, const TarEntry& entry) {
  const auto bad = [&](std::string_view why) {
    if (++bad_files_ <= kExamples) bad_examples_.push_back(fmt::format("{}: {}", entry.name, why));
  };
  if (entry.size > kMostXmlBytes) {
    bad(fmt::format("{} bytes, which is no annotation", entry.size));
    return {};
  }
  IMGD_ASSIGN(const std::string xml, ReadText(archive, entry.offset, entry.size));
  auto image = ParseAnnotation(xml);
  if (!image) {
    bad(image.error().message);
    return {};
  }
  boxes_ += image->boxes.size();
  // The file's own name: the one within is "%s" in some of ImageNet's.
  images_.insert_or_assign(std::string(NameOf(entry.name)), std::move(*image));
  if (boxes_ <= kMostBoxes && images_.size() <= kMostImages) return {};
  return Fail(ErrorCode::kDataLoss, "{} has more than {} bounding boxes or {} images", archive.name(),
              kMostBoxes, kMostImages);
}

Status BoundingBoxes::ReadTar(const Source& archive, int depth) {
  TarReader tar(archive, TarLinks::kPassedOver);
  for (;;) {
    IMGD_ASSIGN(const auto entry, tar.Next());
    if (!entry) return {};
    if (entry->name.ends_with(".xml")) {
      IMGD_TRY(Take(archive, *entry));
    } else if (entry->name.ends_with(".tar") && depth == 0) {
      const Part inner(archive, fmt::format("{} in {}", entry->name, archive.name()), entry->offset,
                       entry->size);
      IMGD_TRY(ReadTar(inner, depth + 1));
    }
  }
}

Result<BoundingBoxes> BoundingBoxes::Read(const std::string& archive) {
  IMGD_ASSIGN(const auto source, OpenUnpacked(archive));
  BoundingBoxes boxes;
  IMGD_TRY(boxes.ReadTar(*source, 0));
  if (!boxes.images_.empty()) return boxes;
  return Fail(ErrorCode::kDataLoss, "{} has no annotation: {} XML files, none of which can be read{}",
              archive, boxes.bad_files_,
              boxes.bad_examples_.empty() ? "" : fmt::format(" ({})", boxes.bad_examples_[0]));
}

const ImageBoxes* BoundingBoxes::Find(std::string_view image) const {
  const auto found = images_.find(std::string(NameOf(image)));
  return found != images_.end() ? &found->second : nullptr;
}

}  // namespace imgd::data
