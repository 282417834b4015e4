#pragma once

#include <array>
#include <atomic>
#include <cstddef>

namespace imgd::trainer::nvjpeg {

/// What the fake library does, and what was asked of it.
struct Fake {
  std::atomic<int> devices = 1;                   ///< 0: as on a machine without a driver
  std::atomic<int> refuse = 0;                    ///< nvJPEG's status of every decoding
  std::atomic<int> refuse_decoder = 0;            ///< and of making a decoder
  std::atomic<int> lost_at_decode = 0;            ///< the GPU fails for good in the n-th decoding; 0: never
  std::atomic<size_t> memory = size_t{64} << 20;  ///< bytes that one allocation on the device may have
  std::atomic<int> wider = 0;                     ///< pixels by which nvJPEG finds images wider than they are

  std::atomic<int> decodes = 0;
  std::atomic<int> alive = 0;  ///< allocations, streams, decoders and libraries not given back
  std::array<std::atomic<int>, 4> allocations;  ///< ever, of each GPU and on the host for it
};

}  // namespace imgd::trainer::nvjpeg

/// The library's only one.
extern "C" imgd::trainer::nvjpeg::Fake* FakeNvjpeg();
