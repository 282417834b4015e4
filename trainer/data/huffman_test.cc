#include <gmock/gmock.h>

#include <algorithm>
#include <cstdlib>
#include <optional>

#include "trainer/data/jpeg.h"
#include "trainer/data/jpeg_errors.h"
#include "trainer/data/jpeg_markers.h"
#include "trainer/data/random.h"
#include "trainer/data/restart_index.h"
#include "trainer/data/test_images.h"

namespace imgd::data {
namespace {

// What EncodeJpeg has no options for.
struct Kind {
  const char* name;
  int width = 163;
  int height = 121;
  int components = 3;
  int across = 2;  // chroma sampling
  int down = 2;
  int quality = 90;
  unsigned restart_interval = 0;
  bool progressive = false;
  bool arithmetic = false;
  bool optimised = false;
  bool interleaved = true;
};

std::vector<uint8_t> NoisyWaves(int width, int height, int components) {
  auto pixels = Waves(width, height, components);
  Random random(5, 0, 0, Purpose::kSynthNoise);
  for (size_t i = 0; i < pixels.size(); ++i) {
    // Half of it rough: long codes and full blocks beside short and empty ones.
    const bool rough = i / static_cast<size_t>(components) / 40 % 2 == 0;
    if (rough)
      pixels[i] =
          static_cast<uint8_t>(std::clamp(pixels[i] + static_cast<int>(random.Below(61)) - 30, 0, 255));
  }
  return pixels;
}

std::string Encode(const Kind& kind) {
  JpegErrors errors(/*strict=*/false);
  jpeg_compress_struct cinfo{};
  unsigned char* buffer = nullptr;
  unsigned long size = 0;  // NOLINT(google-runtime-int)
  const auto pixels = NoisyWaves(kind.width, kind.height, kind.components);
  cinfo.err = errors.Install();
  jpeg_scan_info scans[3] = {};
  const bool ok = errors.Guard([&] {
    jpeg_create_compress(&cinfo);
    jpeg_mem_dest(&cinfo, &buffer, &size);
    cinfo.image_width = static_cast<JDIMENSION>(kind.width);
    cinfo.image_height = static_cast<JDIMENSION>(kind.height);
    cinfo.input_components = kind.components;
    cinfo.in_color_space = kind.components == 1 ? JCS_GRAYSCALE : kind.components == 3 ? JCS_RGB : JCS_CMYK;
    jpeg_set_defaults(&cinfo);
    jpeg_set_quality(&cinfo, kind.quality, TRUE);
    cinfo.comp_info[0].h_samp_factor = kind.across;
    cinfo.comp_info[0].v_samp_factor = kind.down;
    cinfo.restart_interval = kind.restart_interval;
    cinfo.optimize_coding = kind.optimised;
    cinfo.arith_code = kind.arithmetic;
    if (kind.progressive) jpeg_simple_progression(&cinfo);
    if (!kind.interleaved) {
      for (int i = 0; i < 3; ++i) scans[i] = {1, {i}, 0, 63, 0, 0};
      cinfo.scan_info = scans;
      cinfo.num_scans = 3;
    }
    jpeg_start_compress(&cinfo, TRUE);
    const uint8_t note[] = "a note";
    jpeg_write_marker(&cinfo, JPEG_COM, note, sizeof note);
    jpeg_write_marker(&cinfo, JPEG_APP0 + 5, note, sizeof note);
    while (cinfo.next_scanline < cinfo.image_height) {
      auto* row = const_cast<JSAMPLE*>(pixels.data() + cinfo.next_scanline *
                                                           static_cast<size_t>(kind.width * kind.components));
      jpeg_write_scanlines(&cinfo, &row, 1);
    }
    jpeg_finish_compress(&cinfo);
  });
  EXPECT_TRUE(ok) << errors.message();
  std::string file(reinterpret_cast<const char*>(buffer), size);
  jpeg_destroy_compress(&cinfo);
  std::free(buffer);  // NOLINT
  return file;
}

struct View {
  Box box;
  int min_size = 1 << 20;  // of no scaling
};

// The pixels, or why there are none.
std::string PixelsOf(JpegDecoder& decoder, const std::string& file, const View& view,
                     RestartIndex restarts = {}) {
  const auto size = decoder.Open(AsBytes(file), restarts);
  if (!size) return size.error().message;
  const auto part = decoder.Decode(view.box, 1, view.min_size, view.min_size);
  if (!part) return part.error().message;
  std::string pixels;
  for (int y = 0; y < part->pixels.height; ++y) {
    for (int x = 0; x < part->pixels.width; ++x) {
      pixels.append(reinterpret_cast<const char*>(part->pixels.row(y) + static_cast<ptrdiff_t>(x) * 4), 3);
    }
  }
  return pixels;
}

View RandomView(Random& random, int width, int height) {
  const int w = 1 + static_cast<int>(random.Below(static_cast<uint32_t>(width)));
  const int h = 1 + static_cast<int>(random.Below(static_cast<uint32_t>(height)));
  const int left = static_cast<int>(random.Below(static_cast<uint32_t>(width - w + 1)));
  const int top = static_cast<int>(random.Below(static_cast<uint32_t>(height - h + 1)));
  constexpr std::array<int, 4> kSizes = {1 << 20, 40, 20, 5};
  return {
      {static_cast<double>(left), static_cast<double>(top), static_cast<double>(w), static_cast<double>(h)},
      kSizes[random.Below(4)]};
}

JpegDecoder& Libjpeg() {
  static JpegDecoder decoder;
  decoder.UseLibjpegAlone();
  return decoder;
}

class HuffmanOf : public testing::TestWithParam<Kind> {};

TEST_P(HuffmanOf, GivesLibjpegsPixels) {
  const Kind& kind = GetParam();
  const std::string file = Encode(kind);
  JpegDecoder ours;
  Random random(1, 0, 0, Purpose::kCrop);
  for (int i = 0; i < 40; ++i) {
    const View view = RandomView(random, kind.width, kind.height);
    ASSERT_EQ(PixelsOf(ours, file, view), PixelsOf(Libjpeg(), file, view)) << i;
  }
  EXPECT_EQ(ours.files_left_to_libjpeg(),
            kind.progressive || kind.arithmetic || !kind.interleaved ? 40U : 0U);
}

TEST_P(HuffmanOf, RestartMarkersLeaveThePixelsAndMarkers) {
  const Kind& kind = GetParam();
  const std::string file = Encode(kind);
  const auto marked = AddRestartMarkers(AsBytes(file)).value();
  ASSERT_TRUE(marked.changed);
  EXPECT_NE(marked.file.find("a note"), marked.file.rfind("a note"));
  EXPECT_TRUE(IsRestartIndex(AsBytes(marked.index), marked.file.size()));
  JpegDecoder ours;
  Random random(2, 0, 0, Purpose::kCrop);
  for (int i = 0; i < 40; ++i) {
    const View view = RandomView(random, kind.width, kind.height);
    const std::string expected = PixelsOf(Libjpeg(), file, view);
    ASSERT_EQ(PixelsOf(ours, marked.file, view, AsBytes(marked.index)), expected) << i;
    ASSERT_EQ(PixelsOf(ours, marked.file, view, kFindRestarts), expected) << i;
    ASSERT_EQ(PixelsOf(ours, marked.file, view), expected) << i;
    // An index of another file, also where it has as many intervals.
    ASSERT_EQ(PixelsOf(ours, file, view, AsBytes(marked.index)), expected) << i;
  }
  EXPECT_EQ(AddRestartMarkers(AsBytes(marked.file)).value().file, marked.file);
}

INSTANTIATE_TEST_SUITE_P(All, HuffmanOf,
                         testing::Values(Kind{.name = "420"}, Kind{.name = "422", .down = 1},
                                         Kind{.name = "444", .across = 1, .down = 1},
                                         Kind{.name = "440", .across = 1},
                                         Kind{.name = "411", .across = 4, .down = 1},
                                         Kind{.name = "Grey", .components = 1, .across = 1, .down = 1},
                                         Kind{.name = "Grey2x2", .components = 1},
                                         Kind{.name = "Cmyk", .components = 4, .across = 1, .down = 1},
                                         Kind{.name = "Fine", .quality = 100},
                                         Kind{.name = "Coarse", .quality = 10},
                                         Kind{.name = "Optimised", .quality = 97, .optimised = true},
                                         Kind{.name = "Restarts", .restart_interval = 3},
                                         Kind{.name = "RestartEachMcu", .restart_interval = 1},
                                         Kind{.name = "RestartsAcrossRows", .restart_interval = 25},
                                         Kind{.name = "Wide", .width = 512, .height = 40},
                                         Kind{.name = "Progressive", .progressive = true},
                                         Kind{.name = "Arithmetic", .arithmetic = true},
                                         Kind{.name = "Scans", .across = 1, .down = 1, .interleaved = false}),
                         [](const auto& info) { return info.param.name; });

TEST(Huffman, TinyImages) {
  JpegDecoder ours;
  for (int size = 1; size <= 17; ++size) {
    const std::string file = Encode({.name = "", .width = size, .height = 18 - size});
    const View view{{0, 0, static_cast<double>(size), static_cast<double>(18 - size)}};
    EXPECT_EQ(PixelsOf(ours, file, view), PixelsOf(Libjpeg(), file, view)) << size;
    EXPECT_TRUE(AddRestartMarkers(AsBytes(file)).has_value());
  }
}

// Whatever was done to a file, it is taken as libjpeg takes it.
TEST(HostileHuffman, DamagedFilesAreLibjpegsToJudge) {
  const std::array<std::string, 4> files = {
      Encode({.name = "420", .width = 90, .height = 70}),
      Encode({.name = "444", .width = 80, .height = 60, .across = 1, .down = 1, .quality = 99}),
      Encode({.name = "Restarts", .width = 90, .height = 70, .restart_interval = 2}),
      Encode({.name = "Optimised", .width = 90, .height = 70, .optimised = true})};
  JpegDecoder ours;
  Random random(3, 0, 0, Purpose::kCrop);
  size_t differ = 0;
  for (uint32_t i = 0; i < 500; ++i) {
    std::string bad = files[i % files.size()];
    const size_t scan = bad.size() - FirstScan(AsBytes(bad)).size();
    for (uint32_t k = 0; k <= i % 4; ++k) {
      // Mostly in the coded data, at times in the header.
      const size_t from = i % 5 == 0 ? 2 : scan;
      bad[from + random.Below(static_cast<uint32_t>(bad.size() - from))] =
          static_cast<char>(i % 3 == 0 ? 0xFF : random.Next32());
    }
    const View view = RandomView(random, 80, 60);
    const std::string expected = PixelsOf(Libjpeg(), bad, view);
    const std::string got = PixelsOf(ours, bad, view);
    // Below a crop's last row, and beside it in the last one, libjpeg may read what is not looked at here.
    if (got != expected) ++differ;
    ASSERT_TRUE(got == expected || expected.find("JPEG") != std::string::npos ||
                expected.find("premature") != std::string::npos)
        << i << expected.substr(0, 99);
    static_cast<void>(AddRestartMarkers(AsBytes(bad)));
  }
  EXPECT_LT(differ, 10U);
}

TEST(HostileHuffman, AnIndexThatLiesChangesNoPixel) {
  const std::string file = Encode({.name = "420", .width = 400, .height = 300});
  const auto marked = AddRestartMarkers(AsBytes(file)).value();
  JpegDecoder ours;
  Random random(4, 0, 0, Purpose::kCrop);
  for (int i = 0; i < 120; ++i) {
    std::string index = marked.index;
    const auto at = random.Below(static_cast<uint32_t>(index.size()));
    if (i % 3 == 0) index[at] = static_cast<char>(random.Next32());
    if (i % 3 == 1) index.resize(at);
    if (i % 3 == 2) index.insert(at, 1, static_cast<char>(random.Next32()));
    const View view = RandomView(random, 400, 300);
    ASSERT_EQ(PixelsOf(ours, marked.file, view, AsBytes(index)), PixelsOf(Libjpeg(), file, view)) << i;
    static_cast<void>(IsRestartIndex(AsBytes(index), marked.file.size()));
  }
  // All intervals but eight later than they are: each then is behind the marker of its number.
  std::string_view rest = marked.index;
  for (int i = 0; i < 8; ++i) {
    auto bytes = AsBytes(rest);
    ASSERT_TRUE(TakeVarint(bytes).has_value());
    rest.remove_prefix(rest.size() - bytes.size());
  }
  const View view{{200, 200, 100, 80}};
  EXPECT_EQ(PixelsOf(ours, marked.file, view, AsBytes(rest)), PixelsOf(Libjpeg(), file, view));
}

TEST(RestartMarkers, AFileThatIsNotWholeIsAnError) {
  const std::string file = Encode({.name = "420"});
  EXPECT_FALSE(AddRestartMarkers(AsBytes(file.substr(0, file.size() / 2))).has_value());
  EXPECT_FALSE(AddRestartMarkers(AsBytes("GIF89a")).has_value());
  EXPECT_FALSE(AddRestartMarkers({}).has_value());
}

}  // namespace
}  // namespace imgd::data
