#include "trainer/data/shard_cache.h"

#include <gmock/gmock.h>

#include <thread>

#include "common/remote/testing/http_server.h"
#include "trainer/data/crc32c.h"
#include "trainer/data/sources.h"
#include "trainer/data/test_images.h"

namespace imgd::data {
namespace {

using testing::HasSubstr;

constexpr uint64_t kChunk = CacheEntry::kChunkBytes;

/// Content of two chunks and a bit, on a server that counts what it sends.
class ShardCacheTest : public testing::Test {
 protected:
  ShardCacheTest()
      : content_(2 * kChunk + 1000, '\0'), server_([this](const TestRequest& request) {
          TestReply reply = ServeContent(request, content_, etag_);
          sent_ += reply.body.size();
          return reply;
        }) {
    for (size_t i = 0; i < content_.size(); ++i) content_[i] = static_cast<char>(i * 2654435761U >> 13);
  }
  SourceOpener Opener(uint64_t cache_bytes = 1 << 30) const {
    return SourceOpener({.http = {.patience = Milliseconds(100), .first_wait = Milliseconds(5)},
                         .cache_folder = folder_.path() / "cache",
                         .cache_bytes = cache_bytes});
  }
  std::string Where(const std::string& name = "x.tar") const { return server_.url() + "/" + name; }
  uint32_t Crc() const { return Crc32c(AsBytes(content_)); }
  /// Announces and reads the whole, in pieces.
  std::string ReadAll(const Source& source) const {
    std::vector<ByteRange> ranges;
    for (uint64_t at = 0; at < source.size(); at += 500'000)
      ranges.push_back({at, std::min<uint64_t>(500'000, source.size() - at)});
    source.WillRead(ranges);
    std::string all;
    for (const auto& range : ranges) {
      const auto text = ReadText(source, range.offset, range.size);
      if (!text) return text.error().message;
      all += *text;
    }
    return all;
  }
  size_t Files(const std::string& ending) const {
    size_t n = 0;
    for (const auto& one : std::filesystem::directory_iterator(folder_.path() / "cache"))
      n += one.path().string().ends_with(ending);
    return n;
  }

  TempFolder folder_;
  std::string content_;
  std::string etag_ = "\"1\"";
  std::atomic<uint64_t> sent_ = 0;
  TestHttpServer server_;
};

TEST_F(ShardCacheTest, IsFetchedOnceAndThenReadFromTheDisk) {
  for (int run = 0; run < 3; ++run) {
    const auto source = Opener().Open(Where(), Crc()).value();
    EXPECT_EQ(ReadAll(*source), content_);
  }
  EXPECT_EQ(sent_, content_.size() + 3) << "and a byte at each opening";
  EXPECT_EQ(Files(".shard"), 1U);
  EXPECT_EQ(Files(".part"), 0U);
  etag_ = "\"2\"";
  ReadAll(*Opener().Open(Where(), Crc()).value());
  EXPECT_EQ(Files(".shard"), 2U) << "another version is another copy";
}

TEST_F(ShardCacheTest, IsSharedByTwoThatFillItAtOnce) {
  std::vector<std::thread> threads;
  std::vector<std::string> results(4);
  for (size_t i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] { results[i] = ReadAll(*Opener().Open(Where(), Crc()).value()); });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& result : results) EXPECT_EQ(result, content_);
  EXPECT_EQ(Files(".shard"), 1U);
}

TEST_F(ShardCacheTest, AWrongChecksumIsSaidAndNotKept) {
  const auto source = Opener().Open(Where(), Crc() + 1).value();
  ReadAll(*source);
  while (Files(".part") > 0) std::this_thread::yield();
  EXPECT_THAT(ReadAll(*source), HasSubstr("does not have the checksum that shards.json says"));
  EXPECT_EQ(Files(".shard"), 0U);
}

TEST_F(ShardCacheTest, WhatIsTornOrOfAnotherStartOfTheMachineIsNotTrusted) {
  { ReadAll(*Opener().Open(Where(), Crc()).value()); }
  for (const auto& one : std::filesystem::directory_iterator(folder_.path() / "cache")) {
    if (one.path().extension() == ".shard") std::filesystem::resize_file(one.path(), kChunk);
  }
  folder_.Write("cache/old.000000000000.part", "x");
  sent_ = 0;
  const auto direct = Opener().Open(Where(), Crc()).value();
  EXPECT_EQ(ReadAll(*direct), content_);
  EXPECT_EQ(Files(".shard"), 0U) << "the torn one is gone";
  EXPECT_EQ(ReadAll(*Opener().Open(Where(), Crc()).value()), content_);
  EXPECT_EQ(Files(".part"), 0U) << "the other start's too";
}

TEST_F(ShardCacheTest, TheLongestUnusedGoesWhenThereIsNoRoomButNotWhatIsOpen) {
  const uint64_t limit = 20 << 20;  // two of them
  const auto a = Opener(limit).Open(Where("a"), Crc()).value();
  ReadAll(*a);
  { ReadAll(*Opener(limit).Open(Where("b"), Crc()).value()); }
  EXPECT_EQ(Files(".shard"), 2U);
  const auto c = Opener(limit).Open(Where("c"), Crc()).value();
  EXPECT_EQ(ReadAll(*c), content_);
  while (Files(".part") > 0) std::this_thread::yield();  // it is renamed after the last read
  EXPECT_EQ(Files(".shard"), 2U) << "a is open, so b went";
  sent_ = 0;
  EXPECT_EQ(ReadAll(*a), content_);
  EXPECT_EQ(sent_, 0U);
  const auto d = Opener(limit).Open(Where("d"), Crc()).value();
  EXPECT_EQ(ReadAll(*d), content_) << "read past the full cache";
  EXPECT_EQ(Files(".shard"), 2U);
}

}  // namespace
}  // namespace imgd::data
