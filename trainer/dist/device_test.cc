#include "trainer/dist/device.h"

#include <gmock/gmock.h>

namespace imgd::trainer {
namespace {

using testing::HasSubstr;

TEST(DeviceOf, ARankHasTheGpuOfItsPlaceOnTheNode) {
  EXPECT_EQ(*DeviceOf("auto", 1, 2), at::Device(at::kCUDA, 1));
  EXPECT_EQ(*DeviceOf("cuda", 7, 8), at::Device(at::kCUDA, 7));
}

TEST(DeviceOf, TheCpuIsTakenWhereItIsAskedForOrThereIsNoGpu) {
  EXPECT_EQ(*DeviceOf("cpu", 0, 4), at::Device(at::kCPU));
  EXPECT_EQ(*DeviceOf("cpu", 9, 4), at::Device(at::kCPU)) << "ranks on the CPU need no GPU of their own";
  EXPECT_EQ(*DeviceOf("auto", 3, 0), at::Device(at::kCPU));
}

TEST(DeviceOf, NoTwoRanksShareAGpuAndNoneComputesElsewhereThanAskedFor) {
  for (const char* wanted : {"auto", "cuda"}) {
    const auto device = DeviceOf(wanted, 2, 2);
    ASSERT_FALSE(device.has_value()) << wanted;
    EXPECT_THAT(device.error().message, HasSubstr("local rank 2 needs a GPU of its own, but 2 can be seen"));
  }
  const auto none = DeviceOf("cuda", 0, 0);
  ASSERT_FALSE(none.has_value());
  EXPECT_THAT(none.error().message, HasSubstr("cuda is asked for"));
}

}  // namespace
}  // namespace imgd::trainer
