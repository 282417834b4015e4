#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "common/error.h"
#include "trainer/data/dataset.h"

namespace imgd::data {

/// How values are spread: nearest-rank percentiles; all 0 where there are none.
struct Spread {
  uint64_t count = 0;
  uint64_t min = 0, p5 = 0, p25 = 0, median = 0, p75 = 0, p95 = 0, max = 0;
  double mean = 0;
};

/// Takes the values apart; they are put in order.
Spread SpreadOf(std::vector<uint64_t>& values);

struct SetStats {
  uint64_t images = 0;
  uint64_t looked_at = 0;  ///< of them; all below "balance" is of these alone

  // Balance of the classes, over all images.
  uint64_t classes = 0;
  Spread per_class;          ///< images of a class
  std::string fewest, most;  ///< a class that has per_class.min, per_class.max images
  struct Bin {
    uint64_t from = 0, to = 0;  ///< images, both included
    uint64_t classes = 0;
  };
  std::vector<Bin> bins;  ///< at most ten of the same width; one where all classes are alike

  uint64_t bytes = 0;  ///< files
  Spread file_bytes, width, height, quality;
  std::map<std::string, uint64_t> formats, colours, subsampling;  ///< images by name
  uint64_t progressive = 0;
  uint64_t arithmetic = 0;
  uint64_t with_restarts = 0;
  uint64_t unreadable = 0;  ///< neither JPEG nor PNG, or a header that can't be read
};

/// Told, one call at a time, how many images have been looked at; false stops it.
using StatsProgress = std::function<bool(uint64_t done, uint64_t total)>;

/// Looks at the headers of `sample` images spread evenly over the set, or of all where it is 0 or has no
/// more; nothing is decoded. Errors: kCancelled when `progress` stopped it; those of the set when not one
/// image can be read.
Result<SetStats> LookAtDataset(const Dataset& set, uint64_t sample, int jobs,
                               const StatsProgress& progress = {});

}  // namespace imgd::data
