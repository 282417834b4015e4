#include "trainer/input/nvjpeg_decoder.h"

#include <dlfcn.h>
#include <gmock/gmock.h>

#include <atomic>
#include <cstdlib>
#include <thread>

#include "trainer/data/image_folder.h"
#include "trainer/data/jpeg.h"
#include "trainer/data/jpeg_errors.h"
#include "trainer/data/loader.h"
#include "trainer/data/random.h"
#include "trainer/data/test_images.h"
#include "trainer/input/nvjpeg_api.h"
#include "trainer/input/testing/fake_nvjpeg.h"

namespace imgd::trainer {
namespace {

using data::AsBytes;
using data::Box;
using data::DecodedPart;
using data::DecodeMode;
using data::ImageDecoder;
using data::JpegDecoder;
using data::JpegEncodeOptions;
using data::WavesJpeg;
using testing::HasSubstr;
using testing::SizeIs;

const NvjpegLibraries kFake = {IMGD_FAKE_NVJPEG, IMGD_FAKE_NVJPEG};

// A GPU of its own for each test, as good as new.
class NvjpegTest : public testing::Test {
 protected:
  void SetUp() override {
    void* library = ::dlopen(IMGD_FAKE_NVJPEG, RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library, nullptr) << ::dlerror();
    fake_ = reinterpret_cast<decltype(&FakeNvjpeg)>(::dlsym(library, "FakeNvjpeg"))();
    const nvjpeg::Fake usual{};
    fake_->devices = usual.devices.load();
    fake_->refuse = 0;
    fake_->refuse_decoder = 0;
    fake_->lost_at_decode = 0;
    fake_->memory = usual.memory.load();
    fake_->wider = 0;
    fake_->decodes = 0;
    for (auto& count : fake_->allocations) count = 0;
    EXPECT_EQ(fake_->alive, 0);
  }

  /// Whatever was made is given back.
  void TearDown() override { EXPECT_EQ(fake_->alive, 0); }

  static std::shared_ptr<Nvjpeg> Load(int device = 0) { return Nvjpeg::Load(kFake, device).value(); }

  nvjpeg::Fake* fake_ = nullptr;
};

// A decoded part with pixels of its own.
struct Picture {
  int width = 0;
  int height = 0;
  std::vector<double> box;
  std::vector<uint8_t> rgb;
  bool operator==(const Picture&) const = default;
};

Result<Picture> PictureOf(ImageDecoder& decoder, const std::string& file, const Box& box, double margin = 0,
                          DecodeMode mode = DecodeMode::kExact) {
  IMGD_TRY(decoder.Open(AsBytes(file), {}));
  IMGD_ASSIGN(const DecodedPart part, decoder.Decode(box, margin, 8, 8, mode));
  Picture picture{part.pixels.width,
                  part.pixels.height,
                  {part.box.left, part.box.top, part.box.width, part.box.height},
                  {}};
  for (int y = 0; y < picture.height; ++y) {
    const uint8_t* pixel = part.pixels.row(y);
    for (int x = 0; x < picture.width; ++x, pixel += 4)
      picture.rgb.insert(picture.rgb.end(), pixel, pixel + 3);
  }
  return picture;
}

Picture ByCpu(const std::string& file, const Box& box, double margin = 0,
              DecodeMode mode = DecodeMode::kExact) {
  JpegDecoder decoder;
  return PictureOf(decoder, file, box, margin, mode).value();
}

/// Components that are R, G and B, which only the Adobe marker tells.
std::string RgbJpeg(int width, int height) {
  data::JpegErrors errors(/*strict=*/false);
  jpeg_compress_struct cinfo{};
  cinfo.err = errors.Install();
  unsigned char* buffer = nullptr;
  unsigned long size = 0;  // NOLINT(google-runtime-int): libjpeg's own type
  jpeg_create_compress(&cinfo);
  jpeg_mem_dest(&cinfo, &buffer, &size);
  cinfo.image_width = static_cast<JDIMENSION>(width);
  cinfo.image_height = static_cast<JDIMENSION>(height);
  cinfo.input_components = 3;
  cinfo.in_color_space = JCS_RGB;
  jpeg_set_defaults(&cinfo);
  jpeg_set_colorspace(&cinfo, JCS_RGB);
  jpeg_start_compress(&cinfo, TRUE);
  auto pixels = data::Waves(width, height, 3);
  for (int y = 0; y < height; ++y) {
    JSAMPLE* row = pixels.data() + static_cast<ptrdiff_t>(y) * width * 3;
    jpeg_write_scanlines(&cinfo, &row, 1);
  }
  jpeg_finish_compress(&cinfo);
  std::string file(reinterpret_cast<const char*>(buffer), size);
  jpeg_destroy_compress(&cinfo);
  std::free(buffer);  // NOLINT: jpeg_mem_dest allocates by malloc
  return file;
}

TEST_F(NvjpegTest, PartsOfImagesAreWhereTheCpusAre) {
  const auto decoder = MakeNvjpegDecoder(Load()).value();
  data::Random random(3, 0, 0, data::Purpose::kCrop);
  for (const auto& options :
       {JpegEncodeOptions{}, JpegEncodeOptions{.chroma_sampling = 1}, JpegEncodeOptions{.components = 1}}) {
    for (int i = 0; i < 40; ++i) {
      const int width = 1 + static_cast<int>(random.Below(150));
      const int height = 1 + static_cast<int>(random.Below(150));
      const std::string file = WavesJpeg(width, height, options, i);
      const double left = random.Below(static_cast<uint32_t>(width));
      const double top = random.Below(static_cast<uint32_t>(height));
      const Box box{left, top, 1 + (width - left - 1) / (1 + i % 3), 1 + (height - top - 1) / (1 + i % 4)};
      const double margin = i % 5 == 0 ? 2.5 : 0;
      ASSERT_EQ(PictureOf(*decoder, file, box, margin).value(), ByCpu(file, box, margin))
          << width << " x " << height << ", picture " << i;
    }
  }
  EXPECT_EQ(fake_->decodes, 120);
  EXPECT_EQ(decoder->images_left_to_cpu(), 0U);
}

TEST_F(NvjpegTest, NothingIsShrunkInFastMode) {
  const std::string file = WavesJpeg(160, 120);
  const auto decoder = MakeNvjpegDecoder(Load()).value();
  const Box box{16, 8, 128, 96};
  EXPECT_EQ(PictureOf(*decoder, file, box, 0, DecodeMode::kFast).value(), ByCpu(file, box));
}

TEST_F(NvjpegTest, WhatItDoesNotTakeTheCpuDecodes) {
  const auto nvjpeg = Load();
  const auto decoder = MakeNvjpegDecoder(nvjpeg).value();
  const Box box{3, 5, 40, 30};
  EXPECT_EQ(nvjpeg->first_refusal(), "");
  for (const auto& options : {JpegEncodeOptions{.components = 4}, JpegEncodeOptions{.progressive = true}}) {
    const std::string file = WavesJpeg(90, 70, options);
    EXPECT_EQ(PictureOf(*decoder, file, box).value(), ByCpu(file, box));
    EXPECT_EQ(PictureOf(*decoder, file, box, 0, DecodeMode::kFast).value(),
              ByCpu(file, box, 0, DecodeMode::kFast));
  }
  EXPECT_EQ(decoder->images_left_to_cpu(), 4U);
  EXPECT_EQ(nvjpeg->first_refusal(), "NVJPEG_STATUS_JPEG_NOT_SUPPORTED");
  const std::string file = WavesJpeg(90, 70);
  EXPECT_EQ(PictureOf(*decoder, file, box).value(), ByCpu(file, box)) << "the next one is taken again";
  EXPECT_EQ(decoder->images_left_to_cpu(), 4U);
}

TEST_F(NvjpegTest, ColoursThatItMightMistakeAreLeftToTheCpu) {
  const auto nvjpeg = Load();
  const auto decoder = MakeNvjpegDecoder(nvjpeg).value();
  const std::string file = RgbJpeg(40, 30);
  const Box all{0, 0, 40, 30};
  EXPECT_EQ(PictureOf(*decoder, file, all).value(), ByCpu(file, all));
  EXPECT_EQ(fake_->decodes, 0);
  EXPECT_EQ(nvjpeg->first_refusal(), "its colours are stored as RGB");
}

TEST_F(NvjpegTest, AnImageThatItFindsLargerIsNotWrittenOverTheMemorysEnd) {
  const auto nvjpeg = Load();
  const auto decoder = MakeNvjpegDecoder(nvjpeg).value();
  fake_->wider = 1;
  const std::string file = WavesJpeg(64, 64);
  EXPECT_EQ(PictureOf(*decoder, file, {0, 0, 64, 64}).value(), ByCpu(file, {0, 0, 64, 64}));
  EXPECT_EQ(fake_->decodes, 0);
  EXPECT_EQ(nvjpeg->first_refusal(), "nvJPEG finds another size in it");
}

TEST_F(NvjpegTest, HugeSizesInTheHeaderAllocateNothing) {
  const auto nvjpeg = Load();
  const auto decoder = MakeNvjpegDecoder(nvjpeg).value();
  std::string file = WavesJpeg(64, 64);
  const size_t at = file.find("\xff\xc0") + 5;
  file.replace(at, 4, std::string("\x75\x30\x75\x30", 4));  // 30000 x 30000
  EXPECT_FALSE(PictureOf(*decoder, file, {0, 0, 64, 64}).has_value());
  EXPECT_THAT(nvjpeg->first_refusal(),
              HasSubstr("30000 x 30000 pixels need 2574 MiB on the GPU; at most 512 MiB"));
  EXPECT_EQ(fake_->allocations[0], 0);
  EXPECT_EQ(decoder->images_left_to_cpu(), 0U) << "the CPU could not decode it either";
}

TEST_F(NvjpegTest, WithoutMemoryForAnImageTheCpuDecodesIt) {
  const auto nvjpeg = Load();
  const auto decoder = MakeNvjpegDecoder(nvjpeg).value();
  fake_->memory = 64 * 64 * 3;
  for (const int size : {50, 100, 50, 100}) {
    const std::string file = WavesJpeg(size, size);
    EXPECT_EQ(PictureOf(*decoder, file, {0, 0, 50, 50}).value(), ByCpu(file, {0, 0, 50, 50}));
  }
  EXPECT_EQ(decoder->images_left_to_cpu(), 2U);
  EXPECT_EQ(nvjpeg->first_refusal(), "out of memory");
}

TEST_F(NvjpegTest, MemoryIsKeptBetweenImages) {
  const auto decoder = MakeNvjpegDecoder(Load()).value();
  for (int i = 0; i < 50; ++i) {
    ASSERT_TRUE(PictureOf(*decoder, WavesJpeg(100 + i, 90, {}, i), {0, 0, 90, 80}).has_value());
  }
  EXPECT_LE(fake_->allocations[0], 4) << "one or two for the image, one or two for the part";
}

TEST_F(NvjpegTest, AThreadDecodesOnTheGpuThatWasAskedFor) {
  fake_->devices = 3;
  const auto nvjpeg = Load(2);
  std::thread([&] {
    const auto decoder = MakeNvjpegDecoder(nvjpeg).value();
    EXPECT_TRUE(PictureOf(*decoder, WavesJpeg(64, 64), {0, 0, 64, 64}).has_value());
  }).join();
  EXPECT_EQ(fake_->allocations[2], 2);
  EXPECT_EQ(fake_->allocations[0], 0);
}

TEST_F(NvjpegTest, SaysWhyItCannotBeUsed) {
  const auto error = [](const NvjpegLibraries& libraries, int device = 0) {
    const auto loaded = Nvjpeg::Load(libraries, device);
    return loaded ? "" : loaded.error().message;
  };
  EXPECT_THAT(error({.nvjpeg = "libnvjpeg-none.so.13", .cudart = kFake.cudart}),
              HasSubstr("cannot load libnvjpeg-none.so.13: "));
  EXPECT_THAT(error({.nvjpeg = kFake.nvjpeg, .cudart = "/none/libcudart.so"}),
              HasSubstr("cannot load /none/libcudart.so: "));
  EXPECT_EQ(error({.nvjpeg = "libc.so.6", .cudart = kFake.cudart}), "libc.so.6 has no nvjpegCreateSimple");
  EXPECT_EQ(error({.nvjpeg = kFake.nvjpeg, .cudart = "libc.so.6"}), "libc.so.6 has no cudaGetDeviceCount");
  EXPECT_EQ(error(kFake, 1), "there is no GPU 1: CUDA sees 1");
  fake_->devices = 0;
  EXPECT_EQ(error(kFake), "no GPU: CUDA driver version is insufficient for CUDA runtime version");
}

// Images of several kinds, by a loader of several threads.
class NvjpegLoaderTest : public NvjpegTest {
 protected:
  static constexpr int kImages = 24;

  void SetUp() override {
    NvjpegTest::SetUp();
    for (int i = 0; i < kImages; ++i) {
      const JpegEncodeOptions options = {.components = i % 8 == 3 ? 4 : 3, .progressive = i % 6 == 1};
      Put(i, WavesJpeg(60 + i * 3, 90 - i * 2, options, i));
    }
  }

  void Put(int image, const std::string& file) const {
    folder_.Write(fmt::format("c{}/{:02}.jpg", image % 2, image), file);
  }

  static data::LoaderOptions Training(const std::shared_ptr<Nvjpeg>& nvjpeg) {
    data::LoaderOptions options = {.crop_size = 24,
                                   .decode = DecodeMode::kExact,
                                   .seed = 5,
                                   .global_batch = 8,
                                   .end_step = 6,  // two epochs
                                   .workers = 3,
                                   .prefetch = 2};
    if (nvjpeg) options.decoder = [nvjpeg] { return MakeNvjpegDecoder(nvjpeg); };
    return options;
  }

  data::ImageFolder Open() const { return data::ImageFolder::Open(folder_.path()).value(); }

  /// The pixels of all batches; the error that ended them.
  struct Loaded {
    std::vector<std::vector<uint8_t>> batches;
    data::LoaderFigures figures;
    Error error;
  };

  Loaded Load(const data::LoaderOptions& options) const {
    const auto set = Open();
    data::Loader loader(set, options);
    Loaded loaded;
    for (;;) {
      auto batch = loader.Next();
      if (!batch) loaded.error = batch.error();
      if (!batch || !*batch) break;
      loaded.batches.push_back(std::move((*batch)->pixels));
    }
    loaded.figures = loader.figures();
    return loaded;
  }

  data::TempFolder folder_;
};

TEST_F(NvjpegLoaderTest, BatchesAreTheCpusAndWhatWasLeftToItIsCounted) {
  const auto by_cpu = Load(Training(nullptr));
  const auto by_gpu = Load(Training(NvjpegTest::Load()));
  EXPECT_EQ(by_gpu.error.message, "");
  EXPECT_THAT(by_gpu.batches, SizeIs(6));
  EXPECT_EQ(by_gpu.batches, by_cpu.batches);
  EXPECT_EQ(by_gpu.figures.images, 2U * kImages);
  EXPECT_EQ(by_gpu.figures.images_left_to_cpu, 2U * 6) << "1, 3, 7, 11, 13 and 19";
  EXPECT_EQ(by_cpu.figures.images_left_to_cpu, 0U);
}

TEST_F(NvjpegLoaderTest, DamagedImagesAreLeftOutAsEver) {
  const std::string good = WavesJpeg(90, 80);
  Put(0, "no image");
  Put(2, good.substr(0, good.size() / 2));
  Put(4, good.substr(0, good.size() / 2) + "\xff\xd9");
  auto options = Training(NvjpegTest::Load());
  std::atomic<int> bad = 0;
  options.on_bad_image = [&](const std::string&, const std::string&, uint64_t) { ++bad; };
  const auto loaded = Load(options);
  EXPECT_EQ(loaded.error.message, "");
  EXPECT_EQ(bad, 3);
  EXPECT_EQ(loaded.figures.images, 2U * (kImages - 3));
  EXPECT_EQ(loaded.figures.images_left_to_cpu, 2U * 6) << "as without the damaged ones";
  options.max_bad_images = 2;
  EXPECT_THAT(Load(options).error.message, HasSubstr("3 images could not be decoded, at most 2 are allowed"));
}

TEST_F(NvjpegLoaderTest, AGpuThatFailsEndsTheRunRatherThanLeavingAllToTheCpu) {
  auto options = Training(NvjpegTest::Load());
  std::atomic<int> bad = 0;
  options.on_bad_image = [&](const std::string&, const std::string&, uint64_t) { ++bad; };
  options.workers = 1;  // a second one might find it lost before it has a decoder
  fake_->lost_at_decode = 12;
  const auto loaded = Load(options);
  EXPECT_EQ(loaded.error.code, ErrorCode::kInternal) << "as for anything that another start may mend";
  EXPECT_THAT(loaded.error.message, HasSubstr("cannot decode " + folder_.path().string()));
  EXPECT_THAT(loaded.error.message, HasSubstr(".jpg: GPU 0 has failed: unspecified launch failure"));
  EXPECT_EQ(bad, 0);
}

TEST_F(NvjpegLoaderTest, ALibraryThatCannotWorkOnTheGpuEndsTheRunToo) {
  fake_->refuse = nvjpeg::kArchMismatch;
  EXPECT_THAT(Load(Training(NvjpegTest::Load())).error.message,
              HasSubstr("nvJPEG can't work on GPU 0: NVJPEG_STATUS_ARCH_MISMATCH"));
}

TEST_F(NvjpegLoaderTest, ADecoderThatCannotBeMadeIsTheLoadersError) {
  fake_->refuse_decoder = nvjpeg::kAllocatorFailure;
  const auto loaded = Load(Training(NvjpegTest::Load()));
  EXPECT_EQ(loaded.error.code, ErrorCode::kInternal);
  EXPECT_EQ(loaded.error.message, "nvJPEG makes no decoder on GPU 0: NVJPEG_STATUS_ALLOCATOR_FAILURE");
}

}  // namespace
}  // namespace imgd::trainer
