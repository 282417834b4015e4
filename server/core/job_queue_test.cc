#include "server/core/job_queue.h"

#include <gtest/gtest.h>

#include <random>

namespace imgd {
namespace {

QueuedJob Job(uint64_t id, int priority = 0) { return {.priority = priority, .id = JobId(id)}; }

std::vector<uint64_t> Ids(const JobQueue& queue) {
  std::vector<uint64_t> ids;
  for (const auto& job : queue.InOrder()) ids.push_back(job.id.value());
  return ids;
}

using JobIds = std::vector<uint64_t>;

TEST(JobQueue, WhatComesAndGoesIsInItsPlace) {
  JobQueue queue;
  for (const uint64_t id : {5, 1, 3}) queue.Insert(Job(id));
  EXPECT_EQ(Ids(queue), (JobIds{1, 3, 5}));
  queue.Insert(Job(7, 1));
  queue.Insert(Job(2));
  queue.Erase(Job(3));
  EXPECT_EQ(Ids(queue), (JobIds{7, 1, 2, 5}));
}

TEST(JobQueue, OneThatComesAndGoesBetweenTwoLooksWasNeverThere) {
  JobQueue queue;
  queue.Insert(Job(1));
  queue.Insert(Job(2));
  queue.Erase(Job(1));
  EXPECT_EQ(Ids(queue), (JobIds{2}));
}

TEST(JobQueue, OneMayGoAndComeBackElsewhere) {
  JobQueue queue;
  for (const uint64_t id : {1, 2, 3}) queue.Insert(Job(id));
  ASSERT_EQ(Ids(queue), (JobIds{1, 2, 3}));
  queue.Erase(Job(3));
  queue.Insert(Job(3, 1));
  queue.Erase(Job(3, 1));
  queue.Insert(Job(3, 2));
  EXPECT_EQ(Ids(queue), (JobIds{3, 1, 2}));
}

TEST(JobQueue, RankedAnewItIsInTheNewOrder) {
  JobQueue queue;
  for (const uint64_t id : {1, 2, 3}) queue.Insert(Job(id));
  queue.RankAnew([](QueuedJob& job) {
    job.aged = job.id == JobId(3) ? 1 : 0;
    return job.aged > 0;
  });
  EXPECT_EQ(Ids(queue), (JobIds{3, 1, 2}));
}

TEST(JobQueue, IsAsOneThatIsKeptInOrderAlways) {
  std::mt19937 random(1);
  JobQueue queue;
  std::vector<QueuedJob> plain;
  for (uint64_t id = 1; id < 2000; ++id) {
    if (random() % 3 == 0 && !plain.empty()) {
      const auto at = plain.begin() + static_cast<std::ptrdiff_t>(random() % plain.size());
      queue.Erase(*at);
      plain.erase(at);
    }
    const QueuedJob job = Job(id, static_cast<int>(random() % 5));
    queue.Insert(job);
    plain.insert(std::upper_bound(plain.begin(), plain.end(), job,
                                  [](const QueuedJob& a, const QueuedJob& b) { return a.Before(b); }),
                 job);
    if (random() % 8 != 0) continue;
    JobIds expected;
    for (const auto& known : plain) expected.push_back(known.id.value());
    ASSERT_EQ(Ids(queue), expected);
  }
}

}  // namespace
}  // namespace imgd
