// make_corpus FOLDER: writes the first inputs of each fuzzer, made by the unit tests' builders.
#include <cstdlib>

#include "trainer/data/shard_set.h"
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

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return EXIT_FAILURE;
  const fs::path out = argv[1];
  Tars(out / "tar");
  Records(out);
  Indexes(out);
  Jpegs(out / "jpeg");
  return EXIT_SUCCESS;
}
