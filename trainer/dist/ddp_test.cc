#include "trainer/dist/ddp.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <thread>

namespace imgd::trainer {
namespace {

/// A socket that listens on a free port of loopback, for rank 0's store, which closes it.
Environment WithStore() {
  Environment env;
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  EXPECT_EQ(::bind(fd, reinterpret_cast<const sockaddr*>(&address), size), 0);
  EXPECT_EQ(::listen(fd, 16), 0);
  EXPECT_EQ(::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size), 0);
  env.world_size = 2;
  env.master_fd = fd;
  env.master_port = ntohs(address.sin_port);
  env.host_address = "127.0.0.1";
  env.join_timeout = std::chrono::seconds(60);
  return env;
}

struct Rank {
  Pulse pulse{JobSpec::Limits{}};
  std::unique_ptr<Gang> gang;
  at::Tensor weight, bias;
  std::unique_ptr<GradientAverager> averager;
  bool own_done = false;

  /// One step over `x`, with the loss sum(x * weight) + 2 * sum(bias).
  void Step(const at::Tensor& x) {
    weight.mutable_grad() = at::Tensor();
    bias.mutable_grad() = at::Tensor();
    averager->BeforeForward();
    const auto loss = (x * weight).sum() + 2 * bias.sum();
    averager->BeforeBackward(loss, [this] { own_done = true; });
    loss.backward();
  }
};

/// What the two ranks of a gang do, each on a thread of its own.
void RunBoth(Rank (&ranks)[2], const std::function<void(Rank&, int)>& work) {
  const Environment env = WithStore();
  std::thread threads[2];
  for (int number = 0; number < 2; ++number) {
    threads[number] = std::thread([&, number] {
      Environment own = env;
      own.rank = number;
      Rank& rank = ranks[number];
      auto gang = Gang::Join(own, at::Device(at::kCPU), rank.pulse);
      ASSERT_TRUE(gang.has_value()) << gang.error().ToString();
      rank.gang = std::move(*gang);
      rank.weight = at::full({3, 4}, 5.0 + number).requires_grad_();
      rank.bias = at::full({4}, 7.0 + number).requires_grad_();
      rank.averager = std::make_unique<GradientAverager>(
          *rank.gang, NamedTensors{{"weight", rank.weight}, {"bias", rank.bias}}, NamedTensors{},
          JobSpec::Dist{});
      work(rank, number);
      rank.gang->FinalBarrier();
    });
  }
  for (auto& thread : threads) thread.join();
}

TEST(BucketMebibytes, AreTheJobsOrThoseOfTheBackend) {
  EXPECT_EQ(BucketMebibytes({.bucket_mb = 50}, at::kCPU), 50);
  EXPECT_EQ(BucketMebibytes({.bucket_mb = 50}, at::kCUDA), 50);
  EXPECT_EQ(BucketMebibytes({}, at::kCPU), 4);
  EXPECT_EQ(BucketMebibytes({}, at::kCUDA), 25);
}

TEST(GradientAverager, GradientsAreMeansOverTheRanksAndViewsOfABucket) {
  Rank ranks[2];
  RunBoth(ranks, [](Rank& rank, int number) {
    for (int step = 0; step < 3; ++step) rank.Step(at::full({3, 4}, 1.0 + 2 * number + step));
  });
  for (const Rank& rank : ranks) {
    ASSERT_TRUE(rank.averager);
    EXPECT_TRUE(at::equal(rank.weight.detach(), at::full({3, 4}, 5.0))) << "rank 0's are everybody's";
    EXPECT_TRUE(at::equal(rank.weight.grad(), at::full({3, 4}, 4.0))) << "the mean of 3 and 5 in step 2";
    EXPECT_TRUE(at::equal(rank.bias.grad(), at::full({4}, 2.0)));
    EXPECT_EQ(rank.weight.grad().storage().data(), rank.bias.grad().storage().data())
        << "both lie in one bucket: nothing is copied";
    EXPECT_TRUE(rank.own_done);
    EXPECT_GT(rank.averager->LastAllReduce().seconds, 0);
  }
}

}  // namespace
}  // namespace imgd::trainer
