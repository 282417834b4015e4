#pragma once

#include <zlib.h>

#include <cstring>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "trainer/data/test_images.h"
#include "trainer/data/test_tar.h"

namespace imgd::data {

// --- MATLAB 5 files, byte by byte
// -----------------------------------------------------------------------------

template <typename T>
std::string MatRaw(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

/// An element with its tag and padding; of up to four bytes in the tag itself, as MATLAB writes them.
inline std::string MatElement(uint32_t type, const std::string& data, bool may_be_small = true) {
  if (may_be_small && data.size() <= 4 && !data.empty()) {
    std::string small = MatRaw(static_cast<uint32_t>(data.size()) << 16 | type) + data;
    small.resize(8);
    return small;
  }
  std::string out = MatRaw(type) + MatRaw(static_cast<uint32_t>(data.size())) + data;
  out.resize((out.size() + 7) / 8 * 8);
  return out;
}

/// An array (miMATRIX) of the class `kind`, with all that follows its name.
inline std::string MatMatrix(uint32_t kind, const std::vector<int32_t>& dimensions, const std::string& name,
                             const std::string& rest) {
  std::string sizes;
  for (const int32_t size : dimensions) sizes += MatRaw(size);
  return MatElement(14, MatElement(6, MatRaw(kind) + MatRaw(uint32_t{0})) + MatElement(5, sizes) +
                            MatElement(1, name) + rest);
}

/// A number as MATLAB keeps it: a double array, stored in a byte where it fits.
inline std::string MatNumber(double value) {
  if (value >= 0 && value < 256)
    return MatMatrix(6, {1, 1}, "", MatElement(2, MatRaw(static_cast<uint8_t>(value))));
  return MatMatrix(6, {1, 1}, "", MatElement(9, MatRaw(value)));
}

/// A row of characters, stored in UTF-16.
inline std::string MatText(const std::string& text) {
  std::string wide;
  for (const char c : text) wide += MatRaw(static_cast<uint16_t>(static_cast<uint8_t>(c)));
  return MatMatrix(4, {1, static_cast<int32_t>(text.size())}, "", MatElement(4, wide));
}

/// An array of structs: `items` has for each of them its fields' arrays.
inline std::string MatStructs(const std::string& name, const std::vector<std::string>& fields,
                              const std::vector<std::string>& items) {
  std::string names;
  std::string rest;
  for (const auto& field : fields) {
    names += field;
    names.resize((names.size() / 32 + 1) * 32);
  }
  for (const auto& item : items) rest += item;
  const auto rows = static_cast<int32_t>(items.size() / fields.size());
  return MatMatrix(2, {rows, 1}, name, MatElement(5, MatRaw(int32_t{32})) + MatElement(1, names) + rest);
}

/// A whole file.
inline std::string MatFile(const std::string& elements) {
  std::string header = "MATLAB 5.0 MAT-file, made by a test";
  header.resize(124, ' ');
  return header + MatRaw(uint16_t{0x0100}) + "IM" + elements;
}

// --- zlib
// -----------------------------------------------------------------------------------------------------

/// Packed in zlib's format, or gzip's.
inline std::string Deflate(const std::string& bytes, bool gzip) {
  z_stream z{};
  EXPECT_EQ(deflateInit2(&z, 6, Z_DEFLATED, gzip ? 31 : 15, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(deflateBound(&z, bytes.size()), '\0');
  z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  z.avail_in = static_cast<uInt>(bytes.size());
  z.next_out = reinterpret_cast<Bytef*>(out.data());
  z.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&z, Z_FINISH), Z_STREAM_END);
  out.resize(z.total_out);
  deflateEnd(&z);
  return out;
}

/// A compressed variable of a MATLAB file.
inline std::string MatCompressed(const std::string& element) {
  const std::string packed = Deflate(element, /*gzip=*/false);
  return MatRaw(uint32_t{15}) + MatRaw(static_cast<uint32_t>(packed.size())) + packed;
}

// --- a small ILSVRC2012
// ---------------------------------------------------------------------------------------

/// One row of meta.mat.
inline std::vector<std::string> MatSynset(int id, const std::string& wnid, const std::string& words,
                                          int children) {
  return {MatNumber(id), MatText(wnid), MatText(words), MatText("a gloss"), MatNumber(children)};
}

/// Three classes whose ids are in another order than their WNIDs, and a synset that is none.
inline std::string MiniMeta() {
  std::vector<std::string> items;
  for (const auto& row :
       {MatSynset(1, "n03126707", "crane", 0), MatSynset(2, "n01440764", "tench, Tinca tinca", 0),
        MatSynset(300, "n02077923", "sea lion", 0), MatSynset(4, "n00001740", "entity", 3)})
    items.insert(items.end(), row.begin(), row.end());
  return MatFile(MatCompressed(
      MatStructs("synsets", {"ILSVRC2012_ID", "WNID", "words", "gloss", "num_children"}, items)));
}

/// "n03126707", ...: what the validation images show, in the order of their names.
inline const std::vector<std::string> kMiniValWnids = {"n03126707", "n01440764", "n02077923",
                                                       "n02077923", "n03126707", "n01440764"};

inline std::string MiniAnnotation(const std::string& name, const std::string& wnid) {
  return fmt::format(
      "<annotation>\n\t<folder>{1}</folder>\n\t<filename>{0}</"
      "filename>\n\t<source>\n\t\t<database>ILSVRC_2012"
      "</database>\n\t</source>\n\t<size>\n\t\t<width>50</width>\n\t\t<height>40</height>\n\t\t<depth>3</"
      "depth>\n"
      "\t</size>\n\t<segmented>0</segmented>\n\t<object>\n\t\t<name>{1}</name>\n\t\t<pose>Unspecified</"
      "pose>\n"
      "\t\t<bndbox>\n\t\t\t<xmin>5</xmin>\n\t\t\t<ymin>6</ymin>\n\t\t\t<xmax>45</xmax>\n\t\t\t<ymax>36</"
      "ymax>\n"
      "\t\t</bndbox>\n\t</object>\n</annotation>\n",
      name, wnid);
}

/// The original distribution in small, as it is downloaded: ILSVRC2012_img_train.tar (four images of each
/// class, among them a PNG and a CMYK file with .JPEG names), ILSVRC2012_img_val.tar (six), the development
/// kit, and bounding boxes of both.
inline void WriteMiniIlsvrc(const TempFolder& folder) {
  const auto jpeg = [](int seed) { return WavesJpeg(50, 40, {.components = 3}, seed); };
  std::vector<std::pair<std::string, std::string>> classes;
  std::vector<std::pair<std::string, std::string>> train_boxes;
  int seed = 0;
  for (const std::string wnid : {"n02077923", "n03126707", "n01440764"}) {
    std::vector<std::pair<std::string, std::string>> images;
    for (int i = 0; i < 4; ++i) {
      const std::string name = fmt::format("{}_{}", wnid, 10 + 7 * i);
      images.emplace_back(name + ".JPEG", jpeg(++seed));
      if (i < 2) train_boxes.emplace_back(fmt::format("{}/{}.xml", wnid, name), MiniAnnotation(name, wnid));
    }
    if (wnid == "n02077923") images[1].second = WavesJpeg(50, 40, {.components = 4}, 1);
    if (wnid == "n01440764") images[2].second = "\x89PNG\r\n\x1A\n" + std::string(100, '\1');
    classes.emplace_back(wnid + ".tar", Tar(images));
  }
  folder.Write("ILSVRC2012_img_train.tar", Tar(classes));
  std::vector<std::pair<std::string, std::string>> val;
  std::vector<std::pair<std::string, std::string>> val_boxes;
  std::string truth;
  for (size_t i = kMiniValWnids.size(); i > 0; --i) {  // the archive's order is not that of the names
    const std::string name = fmt::format("ILSVRC2012_val_{:08}", i);
    val.emplace_back(name + ".JPEG", jpeg(100 + static_cast<int>(i)));
    val_boxes.emplace_back("val/" + name + ".xml", MiniAnnotation(name, kMiniValWnids[i - 1]));
  }
  for (const auto& wnid : kMiniValWnids)
    truth += wnid == "n03126707" ? "1\n" : wnid == "n01440764" ? "2\n" : "300\n";
  folder.Write("ILSVRC2012_img_val.tar", Tar(val));
  folder.Write("ILSVRC2012_devkit_t12.tar.gz",
               Deflate(Tar({{"ILSVRC2012_devkit_t12/readme.txt", "hello"},
                            {"ILSVRC2012_devkit_t12/data/meta.mat", MiniMeta()},
                            {"ILSVRC2012_devkit_t12/data/ILSVRC2012_validation_ground_truth.txt", truth}}),
                       /*gzip=*/true));
  folder.Write("ILSVRC2012_bbox_train_v2.tar.gz", Deflate(Tar(train_boxes), /*gzip=*/true));
  folder.Write("ILSVRC2012_bbox_val_v3.tgz", Deflate(Tar(val_boxes), /*gzip=*/true));
}

}  // namespace imgd::data
