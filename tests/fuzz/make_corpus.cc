// make_corpus FOLDER: writes the first inputs of each fuzzer, made by the unit tests' builders.
#include <png.h>

#include <cstdlib>

#include "trainer/data/shard_set.h"
#include "trainer/data/test_ilsvrc.h"
#include "trainer/data/test_images.h"
#include "trainer/data/test_records.h"
#include "trainer/data/test_tar.h"

using namespace imgd::data;

namespace {

namespace fs = std::filesystem;

void Write(const fs::path& path, const std::string& content) {
  fs::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << content;
}

void Tars(const fs::path& out) {
  Write(out / "webdataset", Tar({{"a/1.jpg", "one"},
                                 {"a/1.cls", "3\n"},
                                 {"a/2.JPEG", "two"},
                                 {"a/2.json", R"({"label": 4, "x": [1e300]})"}}));
  Write(out / "of_tars",
        Tar({{"n01.tar", Tar({{"n01_1.JPEG", "one"}})}, {"n02.tar", Tar({{"n02_5.JPEG", "5"}})}}));
  const std::string name = std::string(150, 'n') + ".jpg";
  const std::string record = fmt::format("{} path={}\n", name.size() + 10, name) + "12 size=123\n";
  Write(out / "pax", TarMember("h", record, 'x') + TarMember("short", "12345") + TarMember("", record, 'g'));
  Write(out / "gnu", TarMember("././@LongLink", name + '\0', 'L') + TarMember("short", "12345"));
  Write(out / "links", TarMember("folder/", "", '5') + TarMember("../up.jpg", "") + TarMember("l", "", '2'));
  std::string large = TarMember("a.jpg", "12345");
  large.replace(124, 12, std::string("\x80\0\0\0\0\0\0\0\0\0\0\x05", 12));
  FixTarChecksum(large);
  Write(out / "base256", large);
}

void Records(const fs::path& out) {
  Write(out / "tfrecord/two", TfRecord(Example("AAA", 2, "n02")) + TfRecord(Example("B", 1, "n01", false)));
  Write(out / "tfrecord/empty", TfRecord(""));
  Write(out / "tfrecord/long", TfRecord(Example(std::string(1500, 'b'), 7)));
  const std::string first = ImageRecord(5, 9, "1234");
  Write(out / "recordio/labels",
        RecordIo(ImageRecord(7, 42, "seven")) + RecordIo(ImageRecord(0, 43, "two", {2, 8})));
  Write(out / "recordio/parts", RecordIo(first, 1) + RecordIo("56--", 2) + RecordIo("", 2) +
                                    RecordIo("end", 3) + RecordIo(ImageRecord(1, 44, "")));
}

void Indexes(const fs::path& out) {
  Write(out / "shard_index/two", EncodeShardIndex({5000, {{"a", 512, 100, 3}, {"b/c", 1536, 700, 0}}}));
  Write(out / "shard_index/parts", EncodeShardIndex({900, {{"9", 8, 100, 3, 24}}}));
  Write(out / "shard_index/none", EncodeShardIndex({}));
  SetDescription set{.name = "x", .classes = {"cat", "d\u00f6g"}};
  Write(out / "shards_json/none", set.ToJson());
  set.shards = {{"a-000000.tar", 5000, 2, "0123abcd"}, {"a-000001.tar", 1536, 1, "00000000"}};
  Write(out / "shards_json/two", set.ToJson());
}

/// The bytes after the end choose the crop.
void Jpegs(const fs::path& out) {
  const std::string crop =
      "4Vx\x9A\xBC\xDE\x12\x08"
      "4Vx\x9A\xBC\xDE\x12\x08";
  for (const int components : {1, 3, 4}) {
    for (const bool progressive : {false, true}) {
      const std::string name = fmt::format("{}{}", components, progressive ? "_progressive" : "");
      Write(out / name,
            WavesJpeg(40, 24, {.quality = 60, .components = components, .progressive = progressive}) + crop);
    }
  }
  Write(out / "444", WavesJpeg(33, 17, {.quality = 80, .chroma_sampling = 1}) + crop);
}

std::string Png(uint32_t format) {
  png_image image{.version = PNG_IMAGE_VERSION, .width = 19, .height = 17, .format = format};
  const auto samples = static_cast<int>(PNG_IMAGE_SAMPLE_CHANNELS(format));
  auto pixels = Waves(19, 17, samples);
  const auto wide = Waves(2 * 19, 17, samples);  // a sample may have two bytes
  const bool linear = (format & PNG_FORMAT_FLAG_LINEAR) != 0;
  // A palette of four; pixels are its places.
  const std::vector<uint8_t> palette = Waves(4, 1, 4);
  if ((format & PNG_FORMAT_FLAG_COLORMAP) != 0) {
    image.colormap_entries = 4;
    pixels = Waves(19, 17, 1);
    for (auto& pixel : pixels) pixel %= 4;
  }
  std::string out(4096, '\0');
  png_alloc_size_t size = out.size();
  const void* from = linear ? wide.data() : pixels.data();
  if (png_image_write_to_memory(&image, out.data(), &size, 0, from, 0, palette.data()) == 0) std::abort();
  out.resize(size);
  return out;
}

void Dirty(const fs::path& out) {
  Write(out / "png_rgb", Png(PNG_FORMAT_RGB));
  Write(out / "png_grey_alpha", Png(PNG_FORMAT_GA));
  Write(out / "png_palette", Png(PNG_FORMAT_RGBA_COLORMAP));
  Write(out / "png_16_bits", Png(PNG_FORMAT_LINEAR_Y));
  Write(out / "cmyk", WavesJpeg(21, 18, {.quality = 50, .components = 4}));
  const std::string good = WavesJpeg(34, 20, {.quality = 60});
  Write(out / "good", good);
  Write(out / "truncated", good.substr(0, good.size() * 3 / 4));
  Write(out / "ends_early", good.substr(0, good.size() * 3 / 4) + "\xff\xd9");
}

/// Every kind of array that is read.
std::string MatVariables() {
  const std::string numbers = MatMatrix(6, {2, 2}, "numbers", MatElement(2, {1, 2, 3, 4}));
  const std::string cells =
      MatMatrix(1, {1, 3}, "cells", MatText("ab") + MatNumber(1.5) + MatElement(14, ""));
  const std::string rows =
      MatStructs("rows", {"id", "name"}, {MatNumber(1), MatText("x"), MatNumber(2), MatText("")});
  const std::string sparse = MatMatrix(5, {1, 1}, "sparse", MatElement(5, {0, 0, 0, 0}));
  return numbers + cells + rows + sparse;
}

void Ilsvrc(const fs::path& out) {
  Write(out / "matlab/meta", MiniMeta());
  Write(out / "matlab/all", MatFile(MatVariables()));
  Write(out / "matlab/packed", MatFile(MatCompressed(MatMatrix(6, {1, 1}, "x", MatElement(9, MatRaw(2.5))))));
  Write(out / "annotation/plain", MiniAnnotation("n01440764_10", "n01440764"));
  Write(out / "annotation/odd",
        "<?xml version='1.0'?><!-- <a> --><!DOCTYPE a><annotation><size><width>10.0</width><height>8</height>"
        "<depth/></size><object><name> n1 </name><bndbox a='1'><xmin>9</xmin><xmax>-2</xmax><ymin>0</ymin>"
        "<ymax>99</ymax></bndbox></object><object><name>n2</name></object></annotation>\n");
}

void Far(const fs::path& out) {
  Write(out / "fetch/parts", "0\n2\n11\n1");
  Write(out / "fetch/sums", "1d675b47d978889d74fa0da5fadfb00e  ILSVRC2012_img_train.tar\n# note\n" +
                                std::string(64, 'A') + " *a/b.tar\r\n");
  Write(out / "http/request",
        "GET http://host/a%20b/%2e%2e/c.tar?x=1 HTTP/1.1\r\nHost: host\r\nRange: bytes=5-9\r\n"
        "Connection: close\r\nContent-Length: 0\r\n\r\n");
  Write(out / "http/last", "HEAD / HTTP/1.0\r\nrange: bytes=-10\r\nConnection: keep-alive\r\n\r\n");
  Write(out / "http/part",
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 206 Partial Content\r\nContent-Range: bytes 0-99/1000\r\n"
        "ETag: \"x\"\r\n\r\n");
  Write(out / "http/busy", "HTTP/1.1 503 Busy\r\nRetry-After: 7\r\n\r\n");
  Write(out / "http/moved", "HTTP/1.1 302 Found\r\nLocation: //u:p@[::1]:81/x/../y?q#f\r\n\r\n");
  Write(out / "http/s3", "HTTP/1.1 301 Moved\r\nLocation: s3://bucket/a key?x\r\n\r\n");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return EXIT_FAILURE;
  const fs::path out = argv[1];
  Tars(out / "tar");
  Records(out);
  Indexes(out);
  Jpegs(out / "jpeg");
  Dirty(out / "repair");
  Ilsvrc(out);
  Far(out);
  return EXIT_SUCCESS;
}
