#include "trainer/unanswered.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "common/files.h"

namespace imgd::trainer {
namespace {

TEST(UnansweredPeer, IsNobodyWhereAPeerOnlyDoesNotRead) {
  const UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  ASSERT_EQ(::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(::listen(listener.get(), 1), 0);
  ASSERT_EQ(::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
  const UniqueFd sender(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(::connect(sender.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
  const std::string data(1 << 16, 'x');
  while (::send(sender.get(), data.data(), data.size(), MSG_DONTWAIT) > 0) {
  }
  EXPECT_EQ(UnansweredPeer(), "");
}

}  // namespace
}  // namespace imgd::trainer
