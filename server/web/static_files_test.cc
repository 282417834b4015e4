#include "server/web/static_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace imgd::web {
namespace {

constexpr PageFile kFile{.path = "/assets/a-12.js",
                         .content_type = "text/javascript",
                         .etag = "\"12\"",
                         .raw = "raw",
                         .gzip = "gzip",
                         .brotli = "brotli"};

std::string HeaderOf(const Response& response, std::string_view name) {
  for (const auto& [key, value] : response.headers) {
    if (key == name) return value;
  }
  return "";
}

TEST(StaticFiles, GoInTheSmallestFormThatTheCallerTakes) {
  struct Row {
    std::string accept;
    std::string body;
    std::string encoding;
  };
  for (const auto& [accept, body, encoding] : std::vector<Row>{
           {"", "raw", ""},
           {"identity", "raw", ""},
           {"gzip", "gzip", "gzip"},
           {"gzip, deflate, br, zstd", "brotli", "br"},
           {"br;q=0, gzip;q=0.5", "gzip", "gzip"},
           {"br;q=0.0,gzip;q=0", "raw", ""},
           {"brotli", "raw", ""},
       }) {
    const Response response = AnswerWithFile(kFile, accept, "");
    EXPECT_EQ(response.status, 200) << accept;
    EXPECT_EQ(response.body, body) << accept;
    EXPECT_EQ(HeaderOf(response, "Content-Encoding"), encoding) << accept;
  }
}

TEST(StaticFiles, AreNotSentAgainToWhoHasThem) {
  struct Row {
    std::string if_none_match;
    int status;
  };
  for (const auto& [if_none_match, status] : std::vector<Row>{{"", 200},
                                                              {"\"13\"", 200},
                                                              {"12", 200},
                                                              {"\"12\"", 304},
                                                              {"W/\"12\"", 304},
                                                              {"\"1\", \"12\"", 304},
                                                              {"*", 304}}) {
    const Response response = AnswerWithFile(kFile, "", if_none_match);
    EXPECT_EQ(response.status, status) << if_none_match;
    EXPECT_EQ(response.body.empty(), status == 304);
    EXPECT_EQ(HeaderOf(response, "ETag"), "\"12\"");
  }
}

TEST(StaticFiles, APageMayLoadNothingFromElsewhere) {
  const Response response = AnswerWithFile(kFile, "", "");
  EXPECT_THAT(HeaderOf(response, "Content-Security-Policy"), testing::HasSubstr("default-src 'self'"));
  EXPECT_THAT(HeaderOf(response, "Cache-Control"), testing::HasSubstr("immutable"));
  EXPECT_EQ(HeaderOf(response, "X-Content-Type-Options"), "nosniff");
}

TEST(StaticFiles, EachPageIsTheIndexWhichIsAskedForAgain) {
  const Router router(StaticRoutes(), [](Scope, std::string_view) { return Caller{}; }, {});
  for (const char* target : {"/", "/index.html", "/jobs/12", "/jobs/12/logs?rank=3", "/nodes/gpu-1", "/queue",
                             "/usage", "/submit"}) {
    const auto match = router.Find({.method = "GET", .target = target, .authorization = ""});
    ASSERT_TRUE(match) << target;
    EXPECT_EQ(match->route->scope, Scope::kOpen);
    match->route->handler(match->request, [&](const Response& response) {
      EXPECT_EQ(response.content_type, "text/html; charset=utf-8") << target;
      EXPECT_EQ(HeaderOf(response, "Cache-Control"), "no-cache");
    });
  }
  for (const char* target : {"/nothing", "/assets/", "/jobs/1/2/3"}) {
    EXPECT_FALSE(router.Find({.method = "GET", .target = target, .authorization = ""})) << target;
  }
}

TEST(StaticFiles, ABrowserThatOpensAnAddressThatThereIsNotGetsThePageAndProgramsGetJson) {
  const Router router(StaticRoutes(), [](Scope, std::string_view) { return Caller{}; }, {});
  const std::string browser = "text/html,application/xhtml+xml,*/*;q=0.8";
  const auto type_of = [&](std::string_view target, std::string_view accept,
                           std::string_view method = "GET") {
    const auto match =
        router.Find({.method = method, .target = target, .authorization = "", .accept = accept});
    EXPECT_FALSE(match) << target;
    EXPECT_EQ(match.error().status, 404) << target;
    return match.error().content_type;
  };
  EXPECT_EQ(type_of("/nothing", browser), "text/html; charset=utf-8");
  EXPECT_EQ(type_of("/jobs/1/2/3?x=1", browser, "HEAD"), "text/html; charset=utf-8");
  for (const char* accept : {"", "*/*", "application/json"})
    EXPECT_EQ(type_of("/nothing", accept), "application/json") << accept;
  EXPECT_EQ(type_of("/api/v1/nothing", browser), "application/json");
  EXPECT_EQ(type_of("/nothing", browser, "POST"), "application/json");
}

TEST(StaticFiles, AlertsLinkToPagesThatAreTextToRead) {
  const Router router(StaticRoutes(), [](Scope, std::string_view) { return Caller{}; }, {});
  const auto match =
      router.Find({.method = "GET", .target = "/runbooks/ImgdCannotStore.md", .authorization = ""});
  ASSERT_TRUE(match);
  match->route->handler(match->request, [&](const Response& response) {
    EXPECT_EQ(response.content_type, "text/plain; charset=utf-8");
    EXPECT_THAT(response.body, testing::StartsWith("# ImgdCannotStore\n"));
    EXPECT_EQ(HeaderOf(response, "Cache-Control"), "no-cache") << "its name says nothing of its content";
  });
}

TEST(StaticFiles, AllOfItIsSmall) {
  size_t bytes = 0;
  for (const auto& file : PageFiles()) bytes += file.gzip.size();
  EXPECT_LE(bytes, 100'000u);
}

}  // namespace
}  // namespace imgd::web
