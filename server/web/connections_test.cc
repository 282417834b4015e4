#include <gmock/gmock.h>

#include <deque>
#include <memory>

#include "server/web/testing/web_server_test.h"

/// Which connections are kept, for how long, and which give way.
namespace imgd::web {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

TEST_F(WebServerTest, ASlowHeadEndsByItsLimit) {
  settings.head_limit = milliseconds(100);
  Start();
  TestConnection connection(server->port());
  connection.Send("GET /ok HT");
  EXPECT_TRUE(connection.ReadToEnd());
  TestConnection silent(server->port());
  EXPECT_TRUE(silent.ReadToEnd());
}

TEST_F(WebServerTest, ASlowBodyEndsByItsLimit) {
  settings.body_limit = milliseconds(100);
  Start();
  TestConnection connection(server->port());
  connection.Send("POST /echo HTTP/1.1\r\nAuthorization: Bearer secret\r\nContent-Length: 10\r\n\r\nhalf");
  EXPECT_TRUE(connection.ReadToEnd());
}

TEST_F(WebServerTest, AKeptConnectionEndsWhenNothingComes) {
  settings.idle_limit = milliseconds(100);
  Start();
  TestConnection connection(server->port());
  EXPECT_EQ(connection.Get("/ok")->status, 200);
  EXPECT_TRUE(connection.ReadToEnd());
}

TEST_F(WebServerTest, MoreThanItTakesAreToldToComeAgain) {
  settings.most_in_flight = 1;
  Start();
  TestConnection first(server->port());
  first.Send("GET /later HTTP/1.1\r\n\r\n");
  Answer answer = TakeWaiting();
  TestConnection second(server->port());
  const auto refused = second.Get("/ok");
  ASSERT_TRUE(refused.has_value());
  EXPECT_EQ(refused->status, 503);
  EXPECT_THAT(refused->head, HasSubstr("Retry-After: "));
  answer({.body = "late"});
  answer = nullptr;
  EXPECT_EQ(first.Read()->body, "late");
  // The connection stays; there is room again once the server has seen that its answer is written.
  int status = 503;
  for (int tries = 0; status == 503 && tries < 1000; ++tries)
    status = static_cast<int>(second.Get("/ok")->status);
  EXPECT_EQ(status, 200);
}

TEST_F(WebServerTest, MoreConnectionsThanItTakesAreEndedWhereAllDoSomething) {
  settings.most_connections = 2;
  Start();
  TestConnection first(server->port());
  TestConnection second(server->port());
  first.Send("GET /later HTTP/1.1\r\n\r\n");
  const Answer answer_first = TakeWaiting();
  second.Send("GET /later HTTP/1.1\r\n\r\n");
  const Answer answer_second = TakeWaiting();
  TestConnection third(server->port());
  EXPECT_TRUE(third.ReadToEnd());
  answer_first({.body = "first"});
  answer_second({.body = "second"});
  EXPECT_EQ(first.Read()->body, "first");
  EXPECT_EQ(second.Read()->body, "second");
}

TEST_F(WebServerTest, WhoWaitsLongestForNothingGivesWayToWhoComes) {
  settings.most_connections = 3;
  Start();
  TestConnection silent(server->port());
  TestConnection slow(server->port());
  slow.Send("GET /ok HTTP/1.1\r\nHost: x");
  TestConnection used(server->port());
  EXPECT_EQ(used.Get("/ok")->status, 200);
  TestConnection fourth(server->port());
  EXPECT_EQ(fourth.Get("/ok")->status, 200);
  EXPECT_TRUE(silent.ReadToEnd());
  TestConnection fifth(server->port());
  EXPECT_EQ(fifth.Get("/ok")->status, 200);
  EXPECT_TRUE(slow.ReadToEnd()) << "the beginning of a request is none";
  EXPECT_EQ(used.Get("/ok")->status, 200) << "it asked later";
}

TEST_F(WebServerTest, OfAFullServerTheAddressGivesWayThatHasMostIdleOnes) {
  settings.most_connections = 4;
  settings.listen = "0.0.0.0:0";
  Start();
  TestConnection other(server->port(), "127.0.0.2");
  EXPECT_EQ(other.Get("/ok")->status, 200);
  std::deque<TestConnection> crowd;
  for (int i = 0; i < 20; ++i) {
    crowd.emplace_back(server->port());
    EXPECT_EQ(crowd.back().Get("/ok")->status, 200) << i;
  }
  EXPECT_EQ(other.Get("/ok")->status, 200) << "though it had waited longest";
  EXPECT_TRUE(crowd.front().ReadToEnd());
}

TEST_F(WebServerTest, MoreThanSoManyDoNotListenAndAStopEndsThem) {
  settings.most_listeners = 1;
  settings.most_connections = 2;
  Start();
  TestConnection first(server->port());
  ASSERT_EQ(first.Get("/feed")->status, 200);
  const auto listener = TakeListener();
  TestConnection second(server->port());
  EXPECT_EQ(second.Get("/feed")->status, 503);
  EXPECT_EQ(second.Get("/ok")->status, 200) << "it may ask for something else";
  TestConnection third(server->port());
  EXPECT_EQ(third.Get("/ok")->status, 200) << "a listener takes no place of others";
  server->Stop(Duration::zero());
  EXPECT_TRUE(first.ReadToEnd());
  if (const auto kept = listener.lock()) kept->Send(Chunk("late"), {});
}

TEST_F(WebServerTest, AListenerEndsWithItsSession) {
  Start();
  const auto listen = [this](const char* session) {
    auto connection = std::make_unique<TestConnection>(server->port());
    EXPECT_EQ(connection->Ask("GET", "/feed", "", fmt::format("Cookie: __Host-imgd={}\r\n", session))->status,
              200);
    return connection;
  };
  const auto first = listen("first");
  const auto first_listener = TakeListener();
  const auto second = listen("second");
  const auto second_listener = TakeListener();
  server->EndListenersOfSession("first");
  EXPECT_TRUE(first->ReadToEnd());
  EXPECT_FALSE(second_listener.expired());
  server->EndListenersOf([](const std::string& token) { return token == "page"; });
  EXPECT_TRUE(second->ReadToEnd());
  session_left = milliseconds(50);
  EXPECT_TRUE(listen("short")->ReadToEnd()) << "its time is over";
}

}  // namespace
}  // namespace imgd::web
