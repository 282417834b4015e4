#include "agent/link.h"

#include <poll.h>

#include "agent/testing/fake_daemon.h"

namespace imgd {
namespace {

using testing::HasSubstr;

/// The link's next event of that kind; others are left out. Null if none comes.
template <typename Kind>
std::optional<Kind> Next(Link& link, std::deque<Link::Event>& events) {
  while (true) {
    while (!events.empty()) {
      Link::Event event = std::move(events.front());
      events.pop_front();
      if (auto* found = std::get_if<Kind>(&event)) return std::move(*found);
    }
    pollfd wait{link.event_fd(), POLLIN, 0};
    if (::poll(&wait, 1, 60'000) <= 0) return std::nullopt;
    for (auto& event : link.Take()) events.push_back(std::move(event));
  }
}

v1::ConnectRequest Hello() {
  v1::ConnectRequest request;
  request.mutable_hello()->set_node("n1");
  return request;
}

TEST(Link, SaysWhyThereIsNoConnectionAndConnectsWhenThereIsADaemon) {
  FakeDaemon daemon;
  daemon.Shutdown();
  Link link({.server = daemon.address(), .connect_timeout = std::chrono::milliseconds(50)});
  std::deque<Link::Event> events;
  const auto closed = Next<Link::Closed>(link, events);
  ASSERT_TRUE(closed);
  EXPECT_EQ(closed->connection, 0);
  EXPECT_EQ(closed->error.message, "imgd at " + daemon.address() + " can't be reached");
  daemon.Restart();
  const auto opened = Next<Link::Opened>(link, events);
  ASSERT_TRUE(opened);
  link.Send(opened->connection, Hello());
  const auto message = Next<Link::Message>(link, events);
  ASSERT_TRUE(message);
  EXPECT_TRUE(message->response.has_welcome());
}

TEST(Link, EachConnectionHasANumberAndOldOnesSendNothing) {
  FakeDaemon daemon;
  Link link({.server = daemon.address(), .first_backoff = std::chrono::milliseconds(1)});
  std::deque<Link::Event> events;
  const auto first = Next<Link::Opened>(link, events);
  ASSERT_TRUE(first);
  link.Send(first->connection, Hello());
  ASSERT_TRUE(Next<Link::Message>(link, events));
  link.Confirm(first->connection);
  link.Reset(first->connection);
  const auto closed = Next<Link::Closed>(link, events);
  ASSERT_TRUE(closed);
  EXPECT_EQ(closed->connection, first->connection);
  const auto second = Next<Link::Opened>(link, events);
  ASSERT_TRUE(second);
  EXPECT_GT(second->connection, first->connection);
  link.Send(first->connection, Hello());
  link.Send(second->connection, Hello());
  ASSERT_TRUE(Next<Link::Message>(link, events));
  EXPECT_TRUE(daemon.Until([](auto& seen) { return seen.hellos.size() == 2; }));
}

TEST(Link, AHeartbeatDoesNotWaitBehindWhatASlowConnectionHoldsUp) {
  constexpr size_t kPages = 64;
  FakeDaemon daemon;
  Link link({.server = daemon.address()});
  std::deque<Link::Event> events;
  const auto opened = Next<Link::Opened>(link, events);
  ASSERT_TRUE(opened);
  link.Send(opened->connection, Hello());
  ASSERT_TRUE(Next<Link::Message>(link, events));
  v1::ConnectRequest page;
  page.mutable_metrics_page()->set_text(std::string(128 << 10, 'x'));
  // It reads nothing while it is asked.
  ASSERT_TRUE(daemon.Until([&](auto&) {
    for (size_t i = 0; i < kPages; ++i) link.Send(opened->connection, page);
    for (const int64_t time_us : {1, 2}) {
      v1::ConnectRequest heartbeat;
      heartbeat.mutable_heartbeat()->set_time_us(time_us);
      link.Send(opened->connection, std::move(heartbeat));
    }
    return true;
  }));
  EXPECT_TRUE(daemon.Until([&](auto& seen) {
    if (seen.pages.size() < kPages || seen.heartbeats.empty()) return false;
    EXPECT_EQ(seen.heartbeats.back().time_us(), 2);
    EXPECT_EQ(seen.order.back(), v1::ConnectRequest::kMetricsPage);
    return true;
  }));
}

TEST(Link, TellsWhatARefusingDaemonSaid) {
  FakeDaemon daemon;
  daemon.Refuse("node n1 is taken by another agent");
  Link link({.server = daemon.address()});
  std::deque<Link::Event> events;
  const auto opened = Next<Link::Opened>(link, events);
  ASSERT_TRUE(opened);
  link.Send(opened->connection, Hello());
  const auto closed = Next<Link::Closed>(link, events);
  ASSERT_TRUE(closed);
  EXPECT_THAT(closed->error.message, HasSubstr("refuses this agent: node n1 is taken by another agent"));
}

}  // namespace
}  // namespace imgd
