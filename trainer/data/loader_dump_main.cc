// Shows what the loader makes of images, for the tests that compare with torchvision:
//   loader_dump training|validation exact|fast SIZE RESIZE FOLDER OUT.rgb
//   loader_dump op NAME MAGNITUDE nearest|bilinear WIDTH HEIGHT IN.rgb OUT.rgb
//   loader_dump magnitudes randaugment|trivialaugment WIDTH HEIGHT
// The first writes all pictures, one after the other, and prints "NAME LEFT TOP WIDTH HEIGHT FLIP" for each
// (nothing but the name for validation). The second does one operation of RandAugment to a picture. The last
// prints "NAME SIGNED MAGNITUDE..." for each operation.

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "trainer/data/crop.h"
#include "trainer/data/jpeg.h"
#include "trainer/data/loader.h"

namespace imgd::data {
namespace {

void Append(const std::string& path, const std::vector<uint8_t>& pixels) {
  std::ofstream(path, std::ios::binary | std::ios::app)
      .write(reinterpret_cast<const char*>(pixels.data()), static_cast<std::streamsize>(pixels.size()));
}

/// As SampleReader chooses them.
Status PrintView(const Dataset& set, const LoaderOptions& options, uint32_t sample) {
  if (!options.training) {
    fmt::print("{}\n", set.name(sample));
    return {};
  }
  FileBuffer file;
  IMGD_TRY(set.Read(sample, file));
  JpegDecoder decoder;
  IMGD_ASSIGN(const JpegSize size, decoder.Open(file.bytes()));
  Random random(options.seed, 0, sample, Purpose::kCrop);
  const Crop crop = RandomCrop(size.width, size.height, options.min_scale, random);
  fmt::print("{} {} {} {} {} {}\n", set.name(sample), crop.left, crop.top, crop.width, crop.height,
             random.Coin() ? 1 : 0);
  return {};
}

Status Views(char** arguments) {
  const std::string out = arguments[5];
  IMGD_ASSIGN(const auto set, OpenDataset(arguments[4]));
  LoaderOptions options{
      .training = std::string(arguments[0]) == "training",
      .crop_size = std::atoi(arguments[2]),
      .resize = std::atoi(arguments[3]),
      .decode = std::string(arguments[1]) == "exact" ? DecodeMode::kExact : DecodeMode::kFast,
      .seed = 4,
      .global_batch = 16};
  options.end_step = StepsPerEpoch(set->size(), options.global_batch);
  Loader loader(*set, options);
  for (;;) {
    IMGD_ASSIGN(const auto batch, loader.Next());
    if (!batch) return {};
    Append(out, batch->pixels);
    for (const uint32_t sample : batch->samples) IMGD_TRY(PrintView(*set, options, sample));
  }
}

Status Op(char** arguments) {
  const std::string name = arguments[0];
  std::ifstream in(arguments[5], std::ios::binary);
  std::vector<uint8_t> pixels{std::istreambuf_iterator<char>(in), {}};
  const RgbImage image{pixels.data(), std::atoi(arguments[3]), std::atoi(arguments[4])};
  if (image.bytes() != pixels.size())
    return Fail(ErrorCode::kInvalidArgument, "{} has another size", arguments[5]);
  const auto sampling =
      std::string(arguments[2]) == "bilinear" ? ImageOps::Sampling::kBilinear : ImageOps::Sampling::kNearest;
  ImageOps ops;
  for (int op = 0; op < kPolicyOps; ++op) {
    if (PolicyOpName(static_cast<PolicyOp>(op)) != name) continue;
    ApplyPolicyOp(ops, static_cast<PolicyOp>(op), std::atof(arguments[1]), sampling, image);
    Append(arguments[6], pixels);
    return {};
  }
  return Fail(ErrorCode::kInvalidArgument, "no operation is called {}", name);
}

Status Magnitudes(char** arguments) {
  const auto policy =
      std::string(arguments[0]) == "randaugment" ? Policy::kRandAugment : Policy::kTrivialAugment;
  for (int i = 0; i < kPolicyOps; ++i) {
    const auto op = static_cast<PolicyOp>(i);
    fmt::print("{} {}", PolicyOpName(op), IsSigned(op) ? 1 : 0);
    for (int bin = 0; bin < kPolicyBins; ++bin) {
      fmt::print(" {}", PolicyMagnitude(policy, op, bin, std::atoi(arguments[1]), std::atoi(arguments[2])));
    }
    fmt::print("\n");
  }
  return {};
}

}  // namespace
}  // namespace imgd::data

int main(int argc, char** argv) {
  const std::string command = argc > 1 ? argv[1] : "";
  imgd::Status done;
  if (command == "op" && argc == 9) {
    done = imgd::data::Op(argv + 2);
  } else if (command == "magnitudes" && argc == 5) {
    done = imgd::data::Magnitudes(argv + 2);
  } else if ((command == "training" || command == "validation") && argc == 7) {
    done = imgd::data::Views(argv + 1);
  } else {
    std::fputs("usage: see the head of trainer/data/loader_dump_main.cc\n", stderr);
    return 2;
  }
  if (!done) std::fprintf(stderr, "%s\n", done.error().ToString().c_str());
  return done ? 0 : 1;
}
