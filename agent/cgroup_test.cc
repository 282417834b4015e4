#include "agent/cgroup.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <iterator>

namespace imgd {
namespace {

bool KnowsClone3() { return ::syscall(SYS_clone3, nullptr, 0) != -1 || errno != ENOSYS; }

/// As units of systemd do that may make no namespaces, and containers.
void ForbidClone3() {
  sock_filter code[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone3, 0, 1),
                        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
                        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  sock_fprog filter{.len = std::size(code), .filter = code};
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0 || KnowsClone3()) {
    ::_exit(3);
  }
}

/// -1 where there is no such child, or something ended it.
int CodeOf(pid_t child) {
  int status = 0;
  return child > 0 && ::waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

class ForkedInto : public testing::TestWithParam<bool> {};

TEST_P(ForkedInto, AChildIsInTheGroupWhenItBegins) {
  auto group = Cgroup::Create(fmt::format("imgd-test-{}", ::getpid()));
  if (!group) GTEST_SKIP() << group.error().message;
  if (!GetParam() && !KnowsClone3()) {
    group->Remove();
    GTEST_SKIP() << "clone3 is refused here: the other test is of that";
  }
  const UniqueFd folder = group->Open();
  // In a process of its own, which has one thread and may be filtered.
  const pid_t parent = ::fork();
  if (parent == 0) {
    if (GetParam()) ForbidClone3();
    const pid_t child = ForkInto(folder.get());
    if (child != 0) ::_exit(CodeOf(child));
    const auto in_it = group->Processes();
    ::_exit(std::count(in_it.begin(), in_it.end(), ::getpid()) == 1 && in_it.size() == 1 ? 0 : 1);
  }
  EXPECT_EQ(CodeOf(parent), 0);
  group->Remove();
  EXPECT_FALSE(std::filesystem::exists(group->path()));
}

INSTANTIATE_TEST_SUITE_P(Cgroup, ForkedInto, testing::Bool(),
                         [](const auto& filtered) { return filtered.param ? "ByMoving" : "AtOnce"; });

TEST(Cgroup, WithoutOneItIsAFork) {
  EXPECT_FALSE(Cgroup().Open().valid());
  const pid_t child = ForkInto(-1);
  if (child == 0) ::_exit(7);
  EXPECT_EQ(CodeOf(child), 7);
}

}  // namespace
}  // namespace imgd
