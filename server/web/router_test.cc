#include "server/web/router.h"

#include <gmock/gmock.h>

#include "server/web/errors.h"

namespace imgd::web {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::Pair;

const std::map<std::string, TokenRecord> kTokens = {
    {"good", {.name = "good", .hash = HashOf("imgd_good"), .scopes = {"report"}}},
    {"late", {.name = "late", .hash = HashOf("imgd_late"), .scopes = {"report"}, .expires = {100}}},
    {"other", {.name = "other", .hash = HashOf("imgd_other"), .scopes = {"view"}}},
};

/// The one session that there is, of the token "other".
Caller KnowsSession(Scope scope, std::string_view cookie) {
  if (scope == Scope::kOpen) return {};
  if (cookie != "page") return {.refusal = Refusal::kSessionOver};
  Caller caller = CallerOf(kTokens.at("other"), scope, {50});
  caller.session = "1";
  return caller;
}

Router MakeTable(WallTime now = {50}) {
  const Handler nothing = [](const Request&, const Answer& answer) { answer({}); };
  return Router(
      {{"GET", "/healthz", Scope::kOpen, 0, nothing},
       {"POST", "/api/v1/reports", Scope::kReport, 10, nothing},
       {"POST", "/api/v1/reports/{job}/events", Scope::kReport, 10, nothing}},
      [now](Scope scope, std::string_view secret) { return Authorise(kTokens, scope, secret, now); },
      KnowsSession);
}

TEST(WebRouter, FindsTheRouteAndWhatItsNamesStandFor) {
  const Router router = MakeTable();
  const auto open = router.Find({.method = "GET", .target = "/healthz?x=1", .authorization = ""});
  ASSERT_TRUE(open.has_value());
  EXPECT_EQ(open->request.path, "/healthz");
  EXPECT_EQ(open->request.query, "x=1");
  const auto events = router.Find(
      {.method = "POST", .target = "/api/v1/reports/12/events", .authorization = "bearer  imgd_good"});
  ASSERT_TRUE(events.has_value()) << events.error().body;
  EXPECT_THAT(events->request.parameters, Contains(Pair("job", "12")));
  EXPECT_EQ(events->request.token, "good");
  EXPECT_EQ(events->route->pattern, "/api/v1/reports/{job}/events");
}

TEST(WebRouter, ASessionStandsForItsTokenOnPagesOfOursAlone) {
  const Handler nothing = [](const Request&, const Answer& answer) { answer({}); };
  const Router router(
      {{"GET", "/jobs", Scope::kView, 0, nothing},
       {"POST", "/jobs", Scope::kView, 9, nothing},
       {"GET", "/", Scope::kOpen, 0, nothing},
       {"DELETE", "/session", Scope::kOpen, 0, nothing}},
      [](Scope scope, std::string_view secret) { return Authorise(kTokens, scope, secret, {50}); },
      KnowsSession);
  const std::string_view cookie = "theme=dark; __Host-imgd=page";
  const auto status = [&router](const RequestHead& head) {
    const auto found = router.Find(head);
    return found ? 200 : found.error().status;
  };
  const std::string_view host = "gpu-head:7651";
  EXPECT_EQ(status({.method = "GET", .target = "/jobs", .host = host, .cookie = cookie}), 200);
  EXPECT_EQ(status({.method = "GET", .target = "/jobs", .host = host, .cookie = "__Host-imgd=imgd_x"}), 401);
  EXPECT_EQ(status({.method = "GET", .target = "/jobs", .host = host, .cookie = "imgd=page"}), 401);
  EXPECT_EQ(status({.method = "GET", .target = "/jobs", .host = host, .cookie = "__Host-imgd=imgd_other"}),
            401)
      << "a token is no session";
  EXPECT_EQ(
      status(
          {.method = "GET", .target = "/jobs", .host = host, .fetch_site = "cross-site", .cookie = cookie}),
      403);
  EXPECT_EQ(status({.method = "HEAD", .target = "/jobs", .host = host, .cookie = cookie}), 200);
  EXPECT_EQ(status({.method = "POST", .target = "/jobs", .host = host, .cookie = cookie}), 403)
      << "without X-Imgd-Csrf, as a form of another page would send it";
  EXPECT_EQ(status({.method = "POST", .target = "/jobs", .host = host, .cookie = cookie, .csrf = "1"}), 200);
  EXPECT_EQ(status({.method = "POST",
                    .target = "/jobs",
                    .host = host,
                    .origin = "https://evil.example",
                    .cookie = cookie,
                    .csrf = "1"}),
            403);
  const auto found = router.Find({.method = "GET", .target = "/jobs", .host = host, .cookie = cookie});
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->request.token, "other");
  EXPECT_EQ(found->request.session, "1");
  EXPECT_EQ(
      status({.method = "GET", .target = "/", .host = host, .fetch_site = "cross-site", .cookie = cookie}),
      200)
      << "the page itself is public";
  EXPECT_EQ(status({.method = "DELETE", .target = "/session", .host = host, .cookie = cookie}), 403);
  EXPECT_EQ(
      status(
          {.method = "DELETE", .target = "/session", .host = host, .cookie = "__Host-imgd=x", .csrf = "1"}),
      200)
      << "also one that is over is forgotten";
  EXPECT_EQ(status({.method = "DELETE", .target = "/session", .host = host}), 200);
}

TEST(WebRouter, WhatIsNotThereIs404AndAnotherMethod405) {
  const Router router = MakeTable();
  for (const char* target :
       {"/", "", "*", "healthz", "/healthz/", "/api/v1/reports//events", "/api/v1/reports/1"}) {
    const auto found = router.Find({.method = "POST", .target = target, .authorization = "Bearer imgd_good"});
    ASSERT_FALSE(found.has_value()) << target;
    EXPECT_EQ(found.error().status, 404) << target;
  }
  const auto found = router.Find({.method = "DELETE", .target = "/api/v1/reports", .authorization = ""});
  ASSERT_FALSE(found.has_value());
  EXPECT_EQ(found.error().status, 405);
  EXPECT_THAT(found.error().headers, Contains(Pair("Allow", "POST")));
  const auto health = router.Find({.method = "DELETE", .target = "/healthz", .authorization = ""});
  EXPECT_THAT(health.error().headers, Contains(Pair("Allow", "GET, HEAD")));
}

TEST(WebRouter, HeadIsLetInWhereGetIs) {
  const Router router = MakeTable();
  const auto head = router.Find({.method = "HEAD", .target = "/healthz"});
  ASSERT_TRUE(head.has_value());
  EXPECT_EQ(head->route->method, "GET");
  EXPECT_FALSE(router.Find({.method = "HEAD", .target = "/api/v1/reports"}).has_value());
}

TEST(WebRouter, WithoutAGoodTokenNobodyComesIn) {
  const auto status = [](const char* authorization, WallTime now = {50}) {
    const auto found =
        MakeTable(now).Find({.method = "POST", .target = "/api/v1/reports", .authorization = authorization});
    return found ? 200 : found.error().status;
  };
  EXPECT_EQ(status("Bearer imgd_good"), 200);
  EXPECT_EQ(status(""), 401);
  EXPECT_EQ(status("Bearer "), 401);
  EXPECT_EQ(status("Bearer imgd_bad"), 401);
  EXPECT_EQ(status("Basic imgd_good"), 401);
  EXPECT_EQ(status("imgd_good"), 401);
  EXPECT_EQ(status("Bearer imgd_other"), 403);
  EXPECT_EQ(status("Bearer imgd_late"), 200);
  EXPECT_EQ(status("Bearer imgd_late", {100}), 401) << "it has expired";
}

TEST(WebRouter, ErrorsAreJsonWithACodeAndASentence) {
  const auto found = MakeTable().Find({.method = "POST", .target = "/api/v1/reports", .authorization = ""});
  EXPECT_THAT(found.error().body, HasSubstr("\"code\":\"UNAUTHENTICATED\""));
  EXPECT_THAT(found.error().body, HasSubstr("a token that imgd knows is needed"));
  EXPECT_THAT(found.error().headers, Contains(Pair("WWW-Authenticate", testing::_)));
  const auto busy = ErrorResponse({.code = ErrorCode::kResourceExhausted, .message = "too many"});
  EXPECT_EQ(busy.status, 503);
  EXPECT_THAT(busy.headers, Contains(Pair("Retry-After", testing::_)));
  EXPECT_EQ(ErrorResponse({.code = ErrorCode::kAlreadyExists, .message = "x"}).status, 409);
  EXPECT_EQ(ErrorResponse({.code = ErrorCode::kPermissionDenied, .message = "x"}).status, 403);
}

TEST(WebRouter, WithoutATokenOnlyThisMachinesOwnPagesAndProgramsComeIn) {
  const Handler nothing = [](const Request&, const Answer& answer) { answer({}); };
  const Router router(
      {{"GET", "/jobs", Scope::kView, 0, nothing},
       {"POST", "/jobs", Scope::kSubmit, 10, nothing},
       {"DELETE", "/jobs", Scope::kSubmit, 0, nothing}},
      [](Scope, std::string_view) { return Caller{}; }, KnowsSession);
  struct Case {
    const char* what;
    RequestHead head;
    int status;
  };
  constexpr std::string_view kHost = "localhost:7651";
  constexpr std::string_view kJson = "application/json; charset=utf-8";
  const std::vector<Case> cases = {
      {"curl", {.method = "GET", .target = "/jobs", .host = kHost}, 200},
      {"curl --head", {.method = "HEAD", .target = "/jobs", .host = kHost}, 200},
      {"with a session that is over",
       {.method = "GET", .target = "/jobs", .host = kHost, .cookie = "__Host-imgd=over"},
       200},
      {"with such a one by another name",
       {.method = "GET", .target = "/jobs", .host = "evil.example", .cookie = "__Host-imgd=over"},
       403},
      {"by address", {.method = "GET", .target = "/jobs", .host = "127.0.0.1:7651"}, 200},
      {"by IPv6 address", {.method = "GET", .target = "/jobs", .host = "[::1]:7651"}, 200},
      {"a name of its own", {.method = "GET", .target = "/jobs", .host = "imgd.localhost"}, 200},
      {"a name that somebody gave the address",
       {.method = "GET", .target = "/jobs", .host = "evil.example"},
       403},
      {"no host", {.method = "GET", .target = "/jobs"}, 403},
      {"with a token by any name",
       {.method = "GET", .target = "/jobs", .authorization = "Bearer x", .host = "imgd.example"},
       200},
      {"curl that posts JSON",
       {.method = "POST", .target = "/jobs", .host = kHost, .content_type = kJson},
       200},
      {"a form", {.method = "POST", .target = "/jobs", .host = kHost, .content_type = "text/plain"}, 415},
      {"a form that says nothing", {.method = "POST", .target = "/jobs", .host = kHost}, 415},
      {"our page",
       {.method = "POST",
        .target = "/jobs",
        .host = kHost,
        .origin = "http://localhost:7651",
        .fetch_site = "same-origin",
        .content_type = kJson},
       200},
      {"another page",
       {.method = "POST",
        .target = "/jobs",
        .host = kHost,
        .origin = "https://evil.example",
        .fetch_site = "cross-site",
        .content_type = kJson},
       403},
      {"another page of an old browser",
       {.method = "POST",
        .target = "/jobs",
        .host = kHost,
        .origin = "https://evil.example",
        .content_type = kJson},
       403},
      {"another port",
       {.method = "DELETE", .target = "/jobs", .host = kHost, .fetch_site = "same-site"},
       403},
      {"a page without an origin",
       {.method = "DELETE", .target = "/jobs", .host = kHost, .origin = "null"},
       403},
      {"another page with a token",
       {.method = "POST",
        .target = "/jobs",
        .authorization = "Bearer x",
        .host = kHost,
        .origin = "https://tools.example"},
       200},
  };
  for (const auto& c : cases) {
    const auto found = router.Find(c.head);
    EXPECT_EQ(found ? 200 : found.error().status, c.status) << c.what;
  }
}

TEST(Tokens, AScopeMayDoWhatThoseBeforeItMay) {
  for (const auto& [scope, wanted, allowed] : std::vector<std::tuple<const char*, Scope, bool>>{
           {"view", Scope::kView, true},
           {"view", Scope::kSubmit, false},
           {"submit", Scope::kView, true},
           {"operate", Scope::kSubmit, true},
           {"operate", Scope::kAdmin, false},
           {"admin", Scope::kView, true},
           {"admin", Scope::kReport, false},
           {"report", Scope::kReport, true},
           {"report", Scope::kView, false},
           {"", Scope::kView, false},
       }) {
    EXPECT_EQ(Allows({scope}, wanted), allowed) << scope << " for " << NameOf(wanted);
  }
}

TEST(Tokens, AreRandomAndOnlyTheirHashIsKnown) {
  const std::string a = NewSecret().value();
  const std::string b = NewSecret().value();
  EXPECT_NE(a, b);
  EXPECT_EQ(a.size(), 5u + 64u);
  EXPECT_EQ(HashOf("imgd_good"), HashOf("imgd_good"));
  EXPECT_EQ(HashOf(a).size(), 64u);
  EXPECT_THAT(HashOf(a), testing::Not(HasSubstr(a)));
}

TEST(Tokens, NamesAndScopesAreChecked) {
  EXPECT_TRUE(CheckTokenName("slurm-1").has_value());
  for (const char* name : {"", ".a", "-a", "a b", "a/b", "a\n"})
    EXPECT_FALSE(CheckTokenName(name).has_value());
  EXPECT_TRUE(CheckScopeName("report").has_value());
  EXPECT_THAT(CheckScopeName("reprt").error().message, HasSubstr("allowed: report"));
  EXPECT_FALSE(CheckScopeName("").has_value());
}

}  // namespace
}  // namespace imgd::web
