#pragma once

#include <memory>
#include <string>

#include "common/error.h"
#include "trainer/data/image_decoder.h"

namespace imgd::trainer {

/// Files, or names that the dynamic linker finds.
struct NvjpegLibraries {
  std::string nvjpeg = "libnvjpeg.so.13";
  std::string cudart = "libcudart.so.13";
};

/// NVIDIA's JPEG decoder on one GPU, loaded at run time. Thread-safe.
class Nvjpeg {
 public:
  /// Errors: kFailedPrecondition where a library, or the GPU of number `device`, is missing or can't be used,
  /// saying which; "no GPU: ..." where there is none at all.
  static Result<std::shared_ptr<Nvjpeg>> Load(const NvjpegLibraries& libraries, int device);
  ~Nvjpeg();
  Nvjpeg(const Nvjpeg&) = delete;
  Nvjpeg& operator=(const Nvjpeg&) = delete;

  /// Why the first image that was left to the CPU was; empty when none was.
  std::string first_refusal() const;

 private:
  friend class NvjpegDecoder;
  struct State;
  explicit Nvjpeg(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

/// Decodes by nvJPEG, for the thread that calls this, with a stream and memory of its own: the whole image on
/// the GPU, of which only what a crop needs is copied back, at full size in either mode. The header is read
/// by JpegDecoder first, so that the GPU sees no file that it refuses; and an image that nvJPEG does not
/// take, or fails on, is decoded by it. Errors of Decode(): kUnavailable when the GPU has failed. Errors:
/// kInternal when the GPU does not make what is needed, memory for example.
Result<std::unique_ptr<data::ImageDecoder>> MakeNvjpegDecoder(std::shared_ptr<Nvjpeg> nvjpeg);

}  // namespace imgd::trainer
