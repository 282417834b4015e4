#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/error.h"
#include "trainer/data/file_kind.h"
#include "trainer/data/jpeg.h"
#include "trainer/data/resize.h"
#include "trainer/data/restart_index.h"

namespace imgd::data {

/// What a conversion does to each image.
struct ImageRules {
  int resize = 0;        ///< the short side in pixels of images that are larger; 0: none is made smaller
  int quality = 90;      ///< of JPEGs that are coded anew, 1 to 100
  bool repair = true;    ///< false: every file is taken as it is
  bool restart = false;  ///< restart markers are put in, without loss
};

/// What is wrong with an image. The first two are repaired, the others leave nothing to repair.
enum class Finding { kNone, kCmyk, kPng, kTruncated, kUndecodable, kTooLarge, kNoFile };
constexpr size_t kFindings = 7;

/// "cmyk", "png", "truncated" and so on, as in report.json.
std::string_view NameOf(Finding finding);

struct PreparedImage {
  std::span<const uint8_t> file;  ///< the bytes that came in, or new ones that last until the next call
  FileKind facts;                 ///< of `file`
  Finding finding = Finding::kNone;
  std::string detail;  ///< the decoder's sentence, for what can't be decoded
  bool keep = true;    ///< false: it is to be left out
  bool resized = false;
  bool marked = false;        ///< restart markers were put in
  std::string_view restarts;  ///< RestartIndex of `file`, as long as it; empty where there is none
};

/// Goes through the steps from a source's file to the file that is written: look, decode or repair, make
/// smaller, restart markers. A JPEG that needs nothing comes out bit for bit. What is coded anew (CMYK and
/// YCCK JPEGs, PNGs, what is made smaller) becomes a baseline JPEG, RGB with 4:2:0 or grey, without EXIF; an
/// EXIF orientation is never applied. Keeps its memory; one thread at a time.
class ImagePreparer {
 public:
  explicit ImagePreparer(const ImageRules& rules) : rules_(rules) {}

  PreparedImage Prepare(std::span<const uint8_t> file);

 private:
  /// Nothing when the file can stay. Errors: kDataLoss where it doesn't decode.
  Status DecodeOrRecode(PreparedImage& image);
  Status Encode(const ImageView& pixels, bool grey, PreparedImage& image);
  void AddRestarts(PreparedImage& image);
  Result<DecodedPart> Decode(std::span<const uint8_t> file, bool whole);

  ImageRules rules_;
  JpegDecoder decoder_;
  Resizer resizer_;
  std::vector<uint8_t> rgb_;
  std::string encoded_;
  RestartMarked marked_;
};

}  // namespace imgd::data
