#include <gmock/gmock.h>

#include <thread>

#include "common/remote/testing/http_server.h"
#include "trainer/data/loader.h"
#include "trainer/data/shard_set.h"
#include "trainer/data/sources.h"
#include "trainer/data/test_images.h"
#include "trainer/data/test_tar.h"

namespace imgd::data {
namespace {

/// What waits for an hour would not be waited for by any test: each of these ends because it is told to.
constexpr Milliseconds kHour{3'600'000};

/// A flag that one thread waits for.
class Signal {
 public:
  void Set() {
    set_ = true;
    set_.notify_all();
  }
  void Await() const { set_.wait(false); }

 private:
  std::atomic<bool> set_ = false;
};

/// A shard of 16 images on a server that at some time answers no more.
class SilentServerTest : public testing::Test {
 protected:
  SilentServerTest() {
    std::vector<std::pair<std::string, std::string>> files;
    for (int i = 0; i < 16; ++i) {
      files.emplace_back(fmt::format("{:02}.jpg", i), WavesJpeg(40, 30, {}, i));
      files.emplace_back(fmt::format("{:02}.cls", i), "0");
    }
    shard_ = Tar(files);
    server_ = std::make_unique<TestHttpServer>([this](const TestRequest& request) -> TestReply {
      if (request.target != "/s.tar") return {.status = 404};
      TestReply reply = ServeContent(request, shard_, "\"1\"");
      if (silent_) {
        reply.stall_after = 0;
        asked_in_vain_.Set();
      }
      return reply;
    });
  }

  SourceSettings Settings() {
    return {.http = {.connect = kHour,
                     .stall = kHour,
                     .patience = kHour,
                     .first_patience = kHour,
                     .first_wait = kHour,
                     .quiet = Milliseconds(0),
                     .notice = [this](const std::string&) { tried_in_vain_.Set(); }},
            .ahead_bytes = 0};
  }
  std::string Where() const { return server_->url() + "/s.tar"; }
  static LoaderOptions Options() {
    return {.crop_size = 16, .global_batch = 4, .end_step = 100, .workers = 2, .prefetch = 2};
  }
  /// Announces and reads in another thread, which is then told to stop.
  void ReadAndStop(const Source& source) {
    std::stop_source stop;
    std::thread reader([&] {
      const ByteRange range[] = {{100, 50}};
      std::vector<uint8_t> out(50);
      source.WillRead(range);
      const Status read = source.ReadUntil(100, out, stop.get_token());
      ASSERT_FALSE(read.has_value());
      EXPECT_EQ(read.error().code, ErrorCode::kCancelled);
    });
    asked_in_vain_.Await();
    stop.request_stop();
    reader.join();
  }

  const TempFolder folder_;
  std::string shard_;
  std::atomic<bool> silent_ = false;
  Signal asked_in_vain_;
  Signal tried_in_vain_;
  std::unique_ptr<TestHttpServer> server_;
};

TEST_F(SilentServerTest, ALoaderEndsWhileItsWorkersWaitForAnAnswer) {
  const SourceOpener opener(Settings());
  const auto set = ShardSet::Open(Where(), opener).value();
  silent_ = true;
  {
    Loader loader(*set, Options());
    asked_in_vain_.Await();
  }
  silent_ = false;
  Loader again(*set, Options());
  EXPECT_EQ(again.Next().value().value().count(), 4) << "the set itself is as good as before";
}

TEST_F(SilentServerTest, ALoaderEndsWhileItsWorkersWaitBeforeAnotherTry) {
  const SourceOpener opener(Settings());
  const auto set = ShardSet::Open(Where(), opener).value();
  server_.reset();
  Loader loader(*set, Options());
  tried_in_vain_.Await();
}

TEST_F(SilentServerTest, StopEndsTheWaitForABatch) {
  const SourceOpener opener(Settings());
  const auto set = ShardSet::Open(Where(), opener).value();
  silent_ = true;
  std::atomic<int> bad = 0;
  LoaderOptions options = Options();
  options.on_bad_image = [&](const std::string&, const std::string&, uint64_t) { ++bad; };
  Loader loader(*set, options);
  std::thread taker([&] {
    const auto batch = loader.Next();
    ASSERT_FALSE(batch.has_value());
    EXPECT_EQ(batch.error().code, ErrorCode::kCancelled);
  });
  asked_in_vain_.Await();
  loader.Stop();
  taker.join();
  EXPECT_EQ(bad, 0) << "nothing is known of an image that was not read";
}

TEST_F(SilentServerTest, AReadOfWhatIsFetchedAheadIsBrokenOff) {
  SourceSettings settings = Settings();
  settings.ahead_bytes = 1 << 20;
  const SourceOpener opener(settings);
  const auto source = opener.Open(Where()).value();
  silent_ = true;
  ReadAndStop(*source);
}

TEST_F(SilentServerTest, AReadThroughTheCacheIsBrokenOff) {
  SourceSettings settings = Settings();
  settings.cache_folder = folder_.path() / "cache";
  settings.cache_bytes = 1 << 30;
  const SourceOpener opener(settings);
  const auto source = opener.Open(Where()).value();
  silent_ = true;
  ReadAndStop(*source);
}

TEST_F(SilentServerTest, AReadOfAPartAndOfARecordIsBrokenOff) {
  const SourceOpener opener(Settings());
  const auto source = opener.Open(Where()).value();
  silent_ = true;
  ReadAndStop(Part(*source, "part", 10, 1'000));
  std::stop_source stop;
  stop.request_stop();
  EXPECT_EQ(ReadText(Stoppable(*source, stop.get_token()), 0, 1).error().code, ErrorCode::kCancelled);
}

}  // namespace
}  // namespace imgd::data
