#include "server/rpc/job_file_cache.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "server/rpc/errors.h"

namespace imgd {
namespace {

std::string FileOf(int number) {
  return fmt::format("name: job-{}\ndata: {{train: /data/train}}\nresources: {{nodes: 2}}\n", number);
}

TEST(JobFileCache, AFileReadsTheSameTheSecondTime) {
  JobFileCache cache;
  const auto first = cache.Parse(FileOf(1), "job.yaml");
  const auto again = cache.Parse(FileOf(1), "job.yaml");
  ASSERT_TRUE(first && again);
  EXPECT_EQ(again->name, "job-1");
  EXPECT_EQ(again->name, first->name);
  EXPECT_EQ(cache.Parse(FileOf(2), "job.yaml")->name, "job-2");
}

TEST(JobFileCache, MoreFilesThanItKeepsAreAllRead) {
  JobFileCache cache;
  for (int round = 0; round < 2; ++round) {
    for (int i = 0; i < 3 * static_cast<int>(JobFileCache::kMostFiles); ++i)
      EXPECT_EQ(cache.Parse(FileOf(i), "job.yaml")->name, fmt::format("job-{}", i));
  }
}

TEST(JobFileCache, AFaultIsSaidEachTimeWithTheNameOfItsFile) {
  JobFileCache cache;
  for (const std::string file : {"a.yaml", "b.yaml", "a.yaml"}) {
    const auto spec = cache.Parse("name: job\nfoo: 1\n", file);
    ASSERT_FALSE(spec);
    EXPECT_THAT(ToStatus(spec.error()).error_message(), testing::HasSubstr(file));
  }
}

}  // namespace
}  // namespace imgd
