#include "common/device_figures.h"

#include <gtest/gtest.h>

namespace imgd {
namespace {

TEST(WasRead, AFigureIsReadWhereOnlyOthersAreNot) {
  struct Row {
    const char* error;
    bool busy;
    bool memory;
  };
  const Row rows[] = {
      {"", true, true},
      {"utilisation can't be read: Not Supported", false, true},
      {"memory can't be read: Not Supported", true, false},
      {"power can't be read: Not Supported; memory can't be read: GPU is lost", true, false},
      {"utilisation can't be read: Not Supported; memory can't be read: Not Supported", false, false},
      {"SM clock can't be read: Not Supported", true, true},
      {"not read for 30 s: NVML has not answered since", false, false},
      {"power can't be read: Not Supported; the driver does not answer", false, false},
  };
  for (const auto& row : rows) {
    EXPECT_EQ(WasRead(kBusyFigure, row.error), row.busy) << row.error;
    EXPECT_EQ(WasRead(kMemoryFigure, row.error), row.memory) << row.error;
  }
}

}  // namespace
}  // namespace imgd
