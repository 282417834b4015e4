#include "trainer/dist/within.h"

#include <gtest/gtest.h>

#include <memory>
#include <stdexcept>

namespace imgd::trainer {
namespace {

using std::chrono::milliseconds;

TEST(Within, GivesWhatTheWorkGives) {
  EXPECT_EQ(Within<int>(std::chrono::hours(1), [] { return 7; }), 7);
  EXPECT_THROW(Within<int>(std::chrono::hours(1), []() -> int { throw std::runtime_error("x"); }),
               std::runtime_error);
}

TEST(Within, WorkThatHangsIsLeftToItself) {
  auto go = std::make_shared<std::promise<void>>();
  auto ended = std::make_shared<std::promise<void>>();
  auto end = ended->get_future();
  const auto answer = Within<int>(milliseconds(1), [go, ended] {
    go->get_future().wait();
    ended->set_value();
    return 7;
  });
  EXPECT_EQ(answer, std::nullopt);
  go->set_value();
  end.wait();  // it was still there
}

}  // namespace
}  // namespace imgd::trainer
