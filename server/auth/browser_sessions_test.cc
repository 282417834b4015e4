#include "server/auth/browser_sessions.h"

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "common/files.h"
#include "common/testing/hand_clock.h"

namespace imgd {
namespace {

using testing::HasSubstr;
using testing::MatchesRegex;
using testing::Not;

struct BrowserSessionsTest : testing::Test {
  void SetUp() override {
    file = std::filesystem::path(testing::TempDir()) / fmt::format("imgd_sessions_{}", ::getpid());
    std::filesystem::remove(file);
    for (const char* name : {"ada", "bob"}) {
      tokens[name] = {.name = name, .hash = HashOf(fmt::format("imgd_{}", name)), .scopes = {"submit"}};
    }
    Open();
  }
  void TearDown() override { std::filesystem::remove(file); }
  /// As a restart does.
  void Open() {
    auto opened = BrowserSessions::Open(file, &clock);
    ASSERT_TRUE(opened.has_value()) << opened.error().message;
    sessions = std::move(*opened);
  }
  std::string Begin(const char* token = "ada") { return sessions->Begin(tokens.at(token)).value(); }
  Refusal Try(std::string_view cookie, Scope scope = Scope::kView) {
    return sessions->LetIn(tokens, scope, cookie).refusal;
  }

  HandClock clock{SystemClock().Wall()};
  std::filesystem::path file;
  std::map<std::string, TokenRecord> tokens;
  std::unique_ptr<BrowserSessions> sessions;
};

TEST_F(BrowserSessionsTest, ASessionStandsForItsTokenWhichCannotBeHadFromIt) {
  const std::string cookie = Begin();
  const Caller caller = sessions->LetIn(tokens, Scope::kSubmit, cookie);
  EXPECT_EQ(caller.refusal, Refusal::kNone);
  EXPECT_EQ(caller.token, "ada");
  EXPECT_EQ(caller.session_left, BrowserSessions::kLifetime);
  EXPECT_EQ(Try(cookie, Scope::kAdmin), Refusal::kWrongScope);
  EXPECT_THAT(cookie, MatchesRegex("[0-9a-zA-Z._-]+"));
  EXPECT_THAT(cookie, Not(HasSubstr("imgd_ada")));
  EXPECT_THAT(cookie, Not(HasSubstr(tokens["ada"].hash)));
  EXPECT_NE(Begin(), cookie);
}

TEST_F(BrowserSessionsTest, WhatImgdDidNotMakeIsNone) {
  const std::string cookie = Begin();
  EXPECT_EQ(Try("imgd_ada"), Refusal::kSessionOver);
  for (const char* text : {"", ".", "...", "1.2.3.ada", "x.y.z.ada"})
    EXPECT_EQ(Try(text), Refusal::kSessionOver);
  for (size_t i = 0; i < cookie.size(); ++i) {
    std::string other = cookie;
    other[i] = other[i] == '1' ? '2' : '1';
    EXPECT_EQ(Try(other), Refusal::kSessionOver) << i;
  }
  EXPECT_EQ(Try(cookie.substr(0, cookie.size() - 3) + "bob"), Refusal::kSessionOver) << "of another token";
}

TEST_F(BrowserSessionsTest, ItEndsWithItsTimeAndWithItsToken) {
  const std::string cookie = Begin();
  clock.Pass(BrowserSessions::kLifetime - std::chrono::seconds(1));
  EXPECT_EQ(sessions->LetIn(tokens, Scope::kView, cookie).session_left, std::chrono::seconds(1));
  clock.Pass(std::chrono::seconds(1));
  EXPECT_EQ(Try(cookie), Refusal::kSessionOver);

  const std::string next = Begin();
  EXPECT_EQ(Try(next), Refusal::kNone);
  tokens["ada"].expires = {clock.Wall().micros + 5'000'000};
  EXPECT_EQ(sessions->LetIn(tokens, Scope::kView, next).session_left, std::chrono::seconds(5));
  tokens["ada"].expires = clock.Wall();
  EXPECT_EQ(Try(next), Refusal::kExpired);
  tokens["ada"] = {.name = "ada", .hash = HashOf("imgd_anew"), .scopes = {"submit"}};
  EXPECT_EQ(Try(next), Refusal::kSessionOver) << "another token has its name";
  tokens.erase("ada");
  EXPECT_EQ(Try(next), Refusal::kSessionOver);
}

TEST_F(BrowserSessionsTest, ARestartEndsNoneAndItsFileIsTheOwnersAlone) {
  const std::string cookie = Begin();
  Open();
  EXPECT_EQ(Try(cookie), Refusal::kNone);
  struct stat found {};
  ASSERT_EQ(::stat(file.c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777, 0600u);
  EXPECT_THAT(cookie, Not(HasSubstr(ReadFile(file)->substr(4, 64))));
  for (const char* damage : {"", "key 12\n", "nonsense\n"}) {
    ASSERT_TRUE(WriteFileAtomically(file, damage));
    Open();
    EXPECT_EQ(Try(cookie), Refusal::kSessionOver) << damage;
    EXPECT_EQ(Try(Begin()), Refusal::kNone) << damage;
  }
}

TEST_F(BrowserSessionsTest, LogOutEndsThatOneForGood) {
  const std::string cookie = Begin();
  const std::string other = Begin();
  std::vector<std::string> told;
  sessions->OnEnd([&told](const std::string& session) { told.push_back(session); });
  const std::string session = sessions->LetIn(tokens, Scope::kView, cookie).session;
  ASSERT_TRUE(sessions->End(tokens, cookie).has_value());
  ASSERT_TRUE(sessions->End(tokens, cookie).has_value()) << "again";
  ASSERT_TRUE(sessions->End(tokens, "nonsense").has_value());
  EXPECT_EQ(told, std::vector{session});
  EXPECT_EQ(Try(cookie), Refusal::kSessionOver);
  EXPECT_EQ(Try(other), Refusal::kNone);
  Open();
  EXPECT_EQ(Try(cookie), Refusal::kSessionOver) << "after a restart";
  EXPECT_EQ(Try(other), Refusal::kNone);
}

TEST_F(BrowserSessionsTest, WhatIsRememberedOfLogOutsIsBounded) {
  const std::string bobs = Begin("bob");
  const std::string kept = Begin();
  const auto lines = [this] {
    const std::string text = ReadFile(file).value();
    return static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
  };
  for (size_t i = 0; i < BrowserSessions::kMostEnded; ++i)
    ASSERT_TRUE(sessions->End(tokens, Begin()).has_value());
  EXPECT_EQ(lines(), 1 + BrowserSessions::kMostEnded);
  EXPECT_EQ(Try(kept), Refusal::kNone);
  ASSERT_TRUE(sessions->End(tokens, Begin()).has_value());
  EXPECT_EQ(lines(), 2u);
  Open();
  EXPECT_EQ(Try(kept), Refusal::kSessionOver) << "all of the token until then";
  EXPECT_EQ(Try(bobs), Refusal::kNone);
  clock.Pass(std::chrono::seconds(1));
  EXPECT_EQ(Try(Begin()), Refusal::kNone);
  clock.Pass(2 * BrowserSessions::kLifetime);
  ASSERT_TRUE(sessions->End(tokens, Begin("bob")).has_value());
  EXPECT_EQ(lines(), 2u) << "what is over by itself is forgotten";
}

}  // namespace
}  // namespace imgd
