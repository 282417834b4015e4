#include "agent/shim/shim.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "agent/shim/keeper.h"

namespace imgd {
namespace {

int Complain(const Error& error) {
  std::fprintf(stderr, "imgagent-shim: %s\n", error.ToString().c_str());
  return 1;
}

/// Blocks the signals that the shim takes from a descriptor; the ranks get an empty mask back.
UniqueFd BlockSignals() {
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGHUP, SIG_IGN);
  ::signal(SIGINT, SIG_IGN);
  sigset_t taken;
  sigemptyset(&taken);
  sigaddset(&taken, SIGCHLD);
  sigaddset(&taken, SIGTERM);
  ::sigprocmask(SIG_BLOCK, &taken, nullptr);
  return UniqueFd(::signalfd(-1, &taken, SFD_CLOEXEC | SFD_NONBLOCK));
}

Status RunShim(const ShimOptions& options, RunSpec spec, UniqueFd ready) {
  ::prctl(PR_SET_NAME, "imgagent-shim");
  if (::prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) return FailErrno(errno, "cannot become a subreaper");
  UniqueFd signals = BlockSignals();
  if (!signals.valid()) return FailErrno(errno, "cannot make a signal descriptor");
  IMGD_ASSIGN(auto loop, EventLoop::Create());
  Keeper keeper(loop.get(), RunDir{options.run_dir}, std::move(spec));
  IMGD_TRY(keeper.Listen());
  IMGD_TRY(loop->Watch(signals.get(), EPOLLIN, [&](uint32_t) {
    signalfd_siginfo info{};
    while (::read(signals.get(), &info, sizeof info) == sizeof info)
      keeper.OnSignal(static_cast<int>(info.ssi_signo));
  }));
  IMGD_TRY(WriteAll(ready.get(), "1", "pipe"));
  ready.reset();
  keeper.StartRanks(options.master_fd);
  loop->Run();
  return {};
}

}  // namespace

int ShimMain(const ShimOptions& options) {
  for (const int fd : {options.master_fd, options.lock_fd}) {
    if (fd >= 0) ::fcntl(fd, F_SETFD, FD_CLOEXEC);
  }
  if (::chdir(options.run_dir.c_str()) != 0) {
    return Complain(FailErrno(errno, fmt::format("cannot enter {}", options.run_dir.native())).value());
  }
  auto spec = LoadRunSpec(RunDir{options.run_dir});
  if (!spec) return Complain(spec.error());
  int fds[2];
  if (::pipe2(fds, O_CLOEXEC) != 0) return Complain(FailErrno(errno, "cannot make a pipe").value());
  UniqueFd ready_read(fds[0]);
  UniqueFd ready_write(fds[1]);
  const pid_t pid = ::fork();
  if (pid < 0) return Complain(FailErrno(errno, "cannot start a process").value());
  if (pid > 0) {
    ready_write.reset();
    char byte = 0;
    return ::read(ready_read.get(), &byte, 1) == 1 ? 0 : 1;
  }
  ::setsid();
  ready_read.reset();
  int code = 0;
  if (const auto done = RunShim(options, std::move(*spec), std::move(ready_write)); !done) {
    code = Complain(done.error());
  }
  ::_exit(code);
}

}  // namespace imgd
