#pragma once

#include <gmock/gmock.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <mutex>
#include <thread>

#include "server/web/server.h"
#include "server/web/testing/http_client.h"

namespace imgd::web {

/// A body of pieces of 100 kB, the twentieth of which is an error.
struct TestSource final : BodySource {
  TestSource(std::atomic<int>* the_asked, uint64_t the_size) : asked(the_asked), size(the_size) {}
  uint64_t bytes() const override { return size; }
  void Next(std::function<void(Result<std::string>)> done) override {
    const int number = (*asked)++;
    if (number == 19) return done(Fail(ErrorCode::kInternal, "a disk that breaks"));
    done(std::string(100'000, static_cast<char>('a' + number % 10)));
  }
  std::atomic<int>* asked;
  const uint64_t size;
};

/// A server with paths of the test's own.
struct WebServerTest : testing::Test {
  void SetUp() override {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    folder =
        std::filesystem::path(testing::TempDir()) / fmt::format("imgd_web_{}_{}", info->name(), ::getpid());
    std::filesystem::remove_all(folder);
    std::filesystem::create_directories(folder);
    settings.listen = "127.0.0.1:0";
  }
  void TearDown() override {
    server.reset();
    std::filesystem::remove_all(folder);
  }
  void Start() {
    std::vector<Route> routes = {
        {"GET", "/ok", Scope::kOpen, 0, [](const Request&, const Answer& answer) { answer({.body = "ok"}); }},
        {"POST", "/echo", Scope::kReport, 1000,
         [](const Request& request, const Answer& answer) { answer({.body = request.body}); }},
        {"GET", "/later", Scope::kOpen, 0,
         [this](const Request&, const Answer& answer) {
           const std::lock_guard lock(mutex);
           waiting.push_back(answer);
         }},
        {"GET", "/source", Scope::kOpen, 0,
         [this](const Request&, const Answer& answer) {
           answer(
               {.content_type = "text/plain", .source = std::make_shared<TestSource>(&asked, source_bytes)});
         }},
        {"GET", "/feed", Scope::kOpen, 0,
         [this](const Request&, const Answer& answer) {
           answer({.content_type = "text/plain", .feed = [this](const std::shared_ptr<Listener>& listener) {
                     const std::lock_guard lock(mutex);
                     listeners.push_back(listener);
                   }});
         }},
    };
    auto started = WebServer::Start(
        settings, Router(
                      std::move(routes),
                      [](Scope scope, std::string_view secret) {
                        const bool good = scope == Scope::kOpen || secret == "secret";
                        return Caller{.refusal = good ? Refusal::kNone : Refusal::kUnknown};
                      },
                      [this](Scope, std::string_view cookie) {
                        return Caller{
                            .token = "page", .session = std::string(cookie), .session_left = session_left};
                      }));
    ASSERT_TRUE(started.has_value()) << started.error().message;
    server = std::move(*started);
  }
  /// The connection that listens to /feed.
  std::weak_ptr<Listener> TakeListener() {
    while (true) {
      {
        const std::lock_guard lock(mutex);
        if (!listeners.empty()) {
          auto listener = listeners.back();
          listeners.pop_back();
          return listener;
        }
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  static Piece Chunk(const std::string& text) {
    return std::make_shared<const std::string>(fmt::format("{:x}\r\n{}\r\n", text.size(), text));
  }
  /// The answer that a request to /later waits for.
  Answer TakeWaiting() {
    while (true) {
      {
        const std::lock_guard lock(mutex);
        if (!waiting.empty()) {
          Answer first = waiting.front();
          waiting.erase(waiting.begin());
          return first;
        }
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }

  std::filesystem::path folder;
  WebSettings settings;
  Duration session_left = std::chrono::hours(1);  ///< of whatever session comes
  std::mutex mutex;
  std::atomic<int> asked = 0;  ///< pieces of /source
  std::atomic<uint64_t> source_bytes = 1'000'000;
  std::vector<Answer> waiting;                     // guarded by mutex
  std::vector<std::weak_ptr<Listener>> listeners;  // guarded by mutex
  std::unique_ptr<WebServer> server;
};

}  // namespace imgd::web
