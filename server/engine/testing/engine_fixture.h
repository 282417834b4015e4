#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <filesystem>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "server/engine/engine.h"
#include "server/engine/read_pool.h"

namespace imgd {

/// An agent in this process: keeps what it is sent, and does as it is told from its own thread.
class LocalAgent final : public AgentLink {
 public:
  void Send(v1::ConnectResponse message) override {
    const std::lock_guard lock(mutex_);
    inbox_.push_back(std::move(message));
    ready_.notify_all();
  }
  void Close(Error why) override {
    const std::lock_guard lock(mutex_);
    closed_ = std::move(why);
    ready_.notify_all();
  }
  void Handled() override {
    const std::lock_guard lock(mutex_);
    ++handled_;
    ready_.notify_all();
  }

  /// The next message; nothing when the stream was ended.
  std::optional<v1::ConnectResponse> Next() {
    std::unique_lock lock(mutex_);
    ready_.wait(lock, [this] { return !inbox_.empty() || closed_; });
    if (inbox_.empty()) return std::nullopt;
    auto message = std::move(inbox_.front());
    inbox_.pop_front();
    return message;
  }
  void WaitHandled(int count) {
    std::unique_lock lock(mutex_);
    ready_.wait(lock, [&] { return handled_ >= count || closed_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<v1::ConnectResponse> inbox_;
  std::optional<Error> closed_;
  int handled_ = 0;
};

/// A running engine in a folder of the test's own.
struct EngineTest : testing::Test {
  void SetUp() override {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    folder = std::filesystem::path(testing::TempDir()) /
             fmt::format("imgd_engine_{}_{}", info->name(), ::getpid());
    std::filesystem::remove_all(folder);
    std::filesystem::create_directories(folder);
    Open();
  }
  void TearDown() override {
    pool.reset();
    engine.reset();
    std::filesystem::remove_all(folder);
  }
  void Open() { OpenWith(&clock); }
  void OpenWith(const Clock* with) {
    Load(with);
    if (!HasFatalFailure()) engine->Start();
  }
  /// What is asked of the engine before its Start() is one batch.
  void Load(const Clock* with) {
    pool.reset();
    engine.reset();
    auto opened = Engine::Open({.state_dir = folder, .version = "test"}, with);
    ASSERT_TRUE(opened.has_value()) << opened.error().message;
    engine = std::move(*opened);
    auto readers = ReadPool::Start(folder, 3);
    ASSERT_TRUE(readers.has_value()) << readers.error().message;
    pool = std::move(*readers);
  }

  Result<SubmitAnswer> Submit(const std::string& key = "") {
    std::promise<Result<SubmitAnswer>> answer;
    SubmitOrder order;
    order.submission.name = "rn50";
    order.submission.owner = "ada";
    order.submission.checkpoint_parent = "/c";
    order.yaml = "name: rn50\n";
    order.idempotency_key = key;
    engine->Submit(std::move(order),
                   [&answer](Result<SubmitAnswer> result) { answer.set_value(std::move(result)); });
    return answer.get_future().get();
  }
  Status Cancel(JobId job) {
    std::promise<Status> answer;
    engine->Cancel(job, false, "ada", [&answer](Status status) { answer.set_value(std::move(status)); });
    return answer.get_future().get();
  }
  /// What a read on the pool gives.
  template <typename Work>
  auto Read(Work work) {
    std::promise<decltype(work(std::declval<Reader&>()))> answer;
    pool->Post([&](Reader& reader) { answer.set_value(work(reader)); });
    return answer.get_future().get();
  }
  JobState StateOf(JobId job) {
    return Read([job](Reader& reader) { return reader.Job(job, false).value()->job.state; });
  }
  /// Waits for the hub until the job is in a final state.
  void WaitForEnd(JobId job) {
    while (!IsFinal(StateOf(job))) {
      const uint64_t seen = engine->PublishedEvent(job);
      if (IsFinal(StateOf(job))) return;
      std::promise<void> woken;
      const auto token = engine->events().Wait(job, seen, clock.Now() + std::chrono::seconds(1),
                                               [&woken] { woken.set_value(); });
      if (token) woken.get_future().get();
    }
  }

  SystemClock clock;
  std::filesystem::path folder;
  std::unique_ptr<Engine> engine;
  std::unique_ptr<ReadPool> pool;
};

inline v1::ConnectRequest Hello(const std::string& node) {
  v1::ConnectRequest request;
  request.mutable_hello()->set_node(node);
  request.mutable_hello()->set_agent_id("id-" + node);
  request.mutable_hello()->add_devices();
  return request;
}

inline v1::ConnectRequest StatusOf(const v1::RunId& run, v1::RunPhase phase, bool ended) {
  v1::ConnectRequest request;
  *request.mutable_run_status()->mutable_run() = run;
  request.mutable_run_status()->set_phase(phase);
  if (ended) request.mutable_run_status()->add_exits();
  return request;
}

inline v1::ConnectRequest LineOf(const v1::RunId& run, uint64_t number, const std::string& text) {
  v1::ConnectRequest request;
  *request.mutable_log_lines()->mutable_run() = run;
  auto* line = request.mutable_log_lines()->add_lines();
  line->set_line_number(number);
  line->set_text(text);
  return request;
}

}  // namespace imgd
