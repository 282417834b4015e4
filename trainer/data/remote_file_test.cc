#include "trainer/data/remote_file.h"

#include <gmock/gmock.h>

#include "common/remote/testing/http_server.h"

namespace imgd::data {
namespace {

using testing::ContainsRegex;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::MatchesRegex;

constexpr Milliseconds kShort{100};

/// Gives up soon on what goes wrong every time.
HttpOptions Hurried(Milliseconds stall = kLong) {
  return {.stall = stall,
          .patience = Milliseconds(250),
          .first_patience = kShort,
          .first_wait = Milliseconds(5),
          .quiet = Milliseconds(20)};
}

/// Gives up soon on a try, not on the read.
HttpOptions Persistent() { return {.stall = kShort, .patience = kLong, .first_wait = Milliseconds(5)}; }

std::string Content() {
  std::string content;
  for (int i = 0; i < 20'000; ++i) content += fmt::format("{:05}", i);
  return content;
}

RemoteObject Object(const std::string& url, HttpOptions options = Hurried()) {
  const Url parsed = ParseUrl(url).value();
  return {std::make_shared<HttpClient>(std::move(options)), nullptr, parsed, parsed.ForPeople()};
}

std::string Read(const Source& source, uint64_t offset, uint64_t size) {
  const auto text = ReadText(source, offset, size);
  return text ? *text : "error: " + text.error().message;
}

/// Opening is answered well, as often as it is tried; the later requests by `later`, which gets their number
/// from 0.
TestHttpServer::Handler GoodFirst(const std::string& content,
                                  std::function<TestReply(TestReply, int)> later) {
  auto count = std::make_shared<std::atomic<int>>(0);
  return [=](const TestRequest& request) {
    TestReply reply = ServeContent(request, content, "\"1\"");
    return request.header("range") == "bytes=0-0" ? reply : later(reply, (*count)++);
  };
}

std::string ReadAfter(std::function<TestReply(TestReply, int)> later, HttpOptions options = Hurried()) {
  const TestHttpServer server(GoodFirst(Content(), std::move(later)));
  const auto file = RemoteFile::Open(Object(server.url() + "/x", std::move(options)));
  return file ? Read(**file, 10, 50'000) : "error at opening: " + file.error().message;
}

std::string OpenErrorOf(TestReply reply) {
  const TestHttpServer server([&](const TestRequest&) { return reply; });
  const auto file = RemoteFile::Open(Object(server.url() + "/x?key=secret"));
  return file ? "" : file.error().message;
}

TEST(RemoteFile, IsReadByRangesOverOneConnection) {
  const std::string content = Content();
  const TestHttpServer server([&](const TestRequest& r) { return ServeContent(r, content, "\"1\""); });
  const auto file = RemoteFile::Open(Object(server.url() + "/a%20b/x")).value();
  EXPECT_EQ(file->size(), content.size());
  EXPECT_EQ(file->version(), "\"1\"");
  EXPECT_EQ(Read(*file, 0, content.size()), content);
  EXPECT_EQ(Read(*file, content.size() - 3, 3), "999");
  EXPECT_THAT(Read(*file, content.size() - 3, 4), HasSubstr("ends at byte 100000, before byte 100001"));
  EXPECT_THAT(server.log(), ElementsAre("GET /a%20b/x bytes=0-0", "GET /a%20b/x bytes=0-99999",
                                        "GET /a%20b/x bytes=99997-99999"));
  EXPECT_EQ(server.connections(), 1U);
}

TEST(RemoteFile, GoesOnWhereItWasAfterEveryKindOfBreak) {
  const std::string wanted = Content().substr(10, 50'000);
  const auto read = [](auto change) {
    return ReadAfter(
        [=](TestReply reply, int n) {
          if (n < 2) change(reply);
          return reply;
        },
        Persistent());
  };
  EXPECT_EQ(read([](TestReply& r) { r.cut_after = 20'000; }), wanted);
  EXPECT_EQ(read([](TestReply& r) { r.cut_after = 0; }), wanted);
  EXPECT_EQ(read([](TestReply& r) { r.stall_after = 7; }), wanted);
  EXPECT_EQ(read([](TestReply& r) { r = {.status = 503, .body = "busy"}; }), wanted);
  EXPECT_EQ(read([](TestReply& r) { r.content_length = r.body.size() + 5; }), wanted);
  EXPECT_EQ(read([](TestReply& r) { r.content_length = 10; }), wanted);
}

TEST(RemoteFile, ResumesInTheMiddleOfTheRange) {
  const TestHttpServer server(GoodFirst(Content(), [](TestReply reply, int n) {
    if (n == 0) reply.content_length = reply.body.size(), reply.body.resize(1'000);
    return reply;
  }));
  const auto file = RemoteFile::Open(Object(server.url() + "/x")).value();
  EXPECT_EQ(Read(*file, 10, 5'000), Content().substr(10, 5'000));
  EXPECT_THAT(server.log(), ElementsAre(HasSubstr("0-0"), HasSubstr("10-5009"), HasSubstr("1010-5009")));
}

TEST(RemoteFile, TakesARangeThatIsShorterThanAskedFor) {
  const std::string content = Content();
  EXPECT_EQ(ReadAfter([&](TestReply reply, int n) {
              if (n > 0) return reply;
              reply.headers[1].second = "bytes 10-1009/100000";
              reply.body = content.substr(10, 1'000);
              return reply;
            }),
            content.substr(10, 50'000));
}

TEST(RemoteFile, ReportsWhatTheServerDoesWrong) {
  const auto each = [](auto change) {
    return [=](TestReply reply, int) {
      change(reply);
      return reply;
    };
  };
  EXPECT_THAT(ReadAfter(each([](TestReply& r) { r.headers[0].second = "\"2\""; })), HasSubstr("has changed"));
  EXPECT_THAT(ReadAfter(each([](TestReply& r) { r = {.status = 412}; })), HasSubstr("has changed"));
  EXPECT_THAT(ReadAfter(each([](TestReply& r) { r.headers[1].second = "bytes 10-50009/100001"; })),
              HasSubstr("has changed"));
  EXPECT_THAT(ReadAfter(each([](TestReply& r) { r.headers[1].second = "bytes 11-50010/100000"; })),
              HasSubstr("other bytes than"));
  EXPECT_THAT(ReadAfter(each([](TestReply& r) { r.status = 200; })), HasSubstr("ignores range requests"));
  EXPECT_THAT(ReadAfter(each([](TestReply& r) { r.body += "more"; })),
              HasSubstr("more than it was asked for"));
  EXPECT_THAT(ReadAfter(each([](TestReply& r) { r.endless = true; })),
              HasSubstr("more than it was asked for"));
  EXPECT_THAT(ReadAfter(each([](TestReply& r) { r = {.status = 500}; })),
              ContainsRegex(" tries in [0-9]+ s: the server answers 500"));
  EXPECT_THAT(ReadAfter(each([](TestReply& r) { r.stall_after = 0; }), Hurried(kShort)),
              HasSubstr("no answer for 100 ms"));
  EXPECT_THAT(ReadAfter(each([](TestReply& r) { r.cut_after = 1; })), HasSubstr("cannot read http"));
}

TEST(RemoteFile, ReportsWhatTheServerLiesAbout) {
  const auto each = [](auto change) {
    return [=](TestReply reply, int) {
      change(reply);
      return reply;
    };
  };
  // What follows on the connection may be taken for the next answer.
  EXPECT_THAT(ReadAfter(each([](TestReply& r) { r.content_length = 10; })),
              testing::AnyOf(HasSubstr("the server sends 10 bytes where 4"), HasSubstr("HTTP/0.9")));
  EXPECT_THAT(ReadAfter(each([](TestReply& r) { r.headers[1].second = "bytes 10-99999/100000"; })),
              HasSubstr("other bytes than"));
  EXPECT_THAT(ReadAfter(each([](TestReply& r) { r.headers[1].second = "bytes 50009-10/100000"; })),
              HasSubstr("does not say which bytes"));
  EXPECT_THAT(ReadAfter(each([](TestReply& r) { r.headers.pop_back(); })),
              HasSubstr("does not say which bytes"));
  EXPECT_THAT(ReadAfter(each([](TestReply& r) {
                r = {.status = 302, .headers = {{"Location", "/x"}}};
              })),
              HasSubstr("more than five redirects"));
  const TestReply page = {.headers = {{"Content-Type", "text/html"}}, .body = "<html>Log in"};
  EXPECT_THAT(ReadAfter([&](TestReply, int) { return page; }), HasSubstr("a web page in the file's place"));
  EXPECT_THAT(OpenErrorOf(page), HasSubstr("a web page in the file's place"));
}

TEST(RemoteFile, AByteNowAndThenIsNoAnswer) {
  // At this pace the range would take minutes, without ever a pause that is long.
  EXPECT_THAT(ReadAfter(
                  [](TestReply reply, int) {
                    reply.drip = Milliseconds(5);
                    return reply;
                  },
                  Hurried(kShort)),
              testing::AnyOf(HasSubstr("bytes came in 100 ms"), HasSubstr("no answer for 100 ms")));
}

TEST(ReadWhole, TakesNoMoreThanIsAllowed) {
  const TestHttpServer server([](const TestRequest& request) {
    return TestReply{.body = std::string(1'000, 'x'), .endless = request.target == "/endless"};
  });
  EXPECT_EQ(ReadWhole(Object(server.url() + "/x"), 1'000).value().value().size(), 1'000U);
  for (const char* path : {"/x", "/endless"}) {
    const auto found = ReadWhole(Object(server.url() + path), 999);
    ASSERT_FALSE(found.has_value()) << path;
    EXPECT_THAT(found.error().message, HasSubstr("it has more than 999 bytes"));
  }
}

TEST(RemoteFile, CannotBeOpenedWhereTheAnswerIsOfNoUse) {
  EXPECT_THAT(OpenErrorOf({.status = 404}), HasSubstr("/x: the server answers 404"));
  EXPECT_THAT(OpenErrorOf({.status = 403, .body = "<Error><Code>AccessDenied</Code></Error>"}),
              HasSubstr("403 AccessDenied"));
  EXPECT_THAT(OpenErrorOf({.status = 200, .body = "whole"}), HasSubstr("ignores range requests"));
  EXPECT_THAT(OpenErrorOf({.status = 200, .body = "whole", .endless = true}),
              HasSubstr("ignores range requests"));
  EXPECT_THAT(OpenErrorOf({.status = 206, .body = "x"}), HasSubstr("does not say how large"));
  EXPECT_THAT(OpenErrorOf({.status = 302, .headers = {{"Location", "/y"}}}),
              HasSubstr("more than five redirects"));
  EXPECT_THAT(OpenErrorOf({.status = 302, .headers = {{"Location", "file:///etc/passwd"}}}),
              HasSubstr("a redirect to where none may lead"));
  EXPECT_THAT(OpenErrorOf({.status = 206, .headers = {{"X", std::string(70'000, 'x')}}}),
              HasSubstr("headers have no end"));
}

TEST(RemoteFile, AServerThatIsNotThereIsGivenUpSoonAndSaidOnce) {
  int port = 0;
  {
    port = TestHttpServer([](const TestRequest&) { return TestReply{}; }).port();
  }
  std::vector<std::string> notices;
  HttpOptions options = Hurried();
  options.notice = [&](const std::string& text) { notices.push_back(text); };
  const auto file = RemoteFile::Open(Object(fmt::format("http://me:secret@127.0.0.1:{}/x", port), options));
  ASSERT_FALSE(file.has_value());
  EXPECT_EQ(file.error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(file.error().message,
              MatchesRegex(fmt::format(
                  "cannot reach http://127.0.0.1:{}/x, after [0-9]+ tries in [0-9]+ s: .*", port)));
  EXPECT_THAT(notices, ElementsAre(HasSubstr("trying again")));
}

TEST(RemoteFile, ARedirectIsFollowedWithoutThePasswordToAnotherHost) {
  const std::string content = Content();
  std::string seen = "nothing";
  const TestHttpServer other([&](const TestRequest& request) {
    seen = request.header("authorization");
    return ServeContent(request, content, "\"1\"");
  });
  const TestHttpServer server([&](const TestRequest& request) {
    EXPECT_EQ(request.header("authorization"), "Bearer x");
    return TestReply{.status = 307, .headers = {{"Location", other.url() + "/there"}}, .body = "moved"};
  });
  struct Bearer : Authorizer {
    Status Sign(HttpRequest& request) override {
      request.headers.emplace_back("authorization", "Bearer x");
      return {};
    }
  };
  RemoteObject object = Object(server.url() + "/x");
  object.authorizer = std::make_shared<Bearer>();
  const auto file = RemoteFile::Open(object).value();
  EXPECT_EQ(Read(*file, 5, 5), "00001");
  EXPECT_EQ(seen, "");
}

TEST(RemoteFile, StopBreaksAReadOff) {
  const TestHttpServer server(GoodFirst(Content(), [](TestReply reply, int) {
    reply.stall_after = 1;
    return reply;
  }));
  const auto file = RemoteFile::Open(Object(server.url() + "/x")).value();
  std::thread stopper([&] { file->Stop(); });
  EXPECT_THAT(Read(*file, 0, 100), HasSubstr("error: stopped"));
  stopper.join();
}

TEST(RemoteFile, AReaderBreaksOffItsOwnReadOnly) {
  std::atomic<bool> stalls = true;
  const TestHttpServer server(GoodFirst(Content(), [&](TestReply reply, int) {
    if (stalls) reply.stall_after = 1;
    return reply;
  }));
  const auto file = RemoteFile::Open(Object(server.url() + "/x", Hurried(60 * kLong))).value();
  std::stop_source stop;
  std::vector<uint8_t> out(100);
  std::thread reader(
      [&] { EXPECT_EQ(file->ReadUntil(0, out, stop.get_token()).error().code, ErrorCode::kCancelled); });
  stop.request_stop();
  reader.join();
  stalls = false;
  EXPECT_EQ(Read(*file, 5, 5), "00001");
}

}  // namespace
}  // namespace imgd::data
