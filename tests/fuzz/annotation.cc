// Annotations with bounding boxes (XML).
#include "tests/fuzz/memory_source.h"
#include "trainer/data/bounding_boxes.h"

using namespace imgd::data;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto image = ParseAnnotation({reinterpret_cast<const char*>(data), size});
  if (!image) return 0;
  Require(image->width > 0 && image->height > 0);
  for (const auto& box : image->boxes) {
    Require(0 <= box.xmin && box.xmin < box.xmax && box.xmax <= image->width);
    Require(0 <= box.ymin && box.ymin < box.ymax && box.ymax <= image->height);
  }
  return 0;
}
