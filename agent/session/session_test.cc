#include <fcntl.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <thread>

#include "agent/process.h"
#include "agent/session/session_process.h"
#include "agent/session/session_pump.h"

namespace imgd {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

constexpr auto kGrace = std::chrono::milliseconds(200);

/// A program that runs, with what it wrote so far.
class RunningProgram {
 public:
  explicit RunningProgram(std::vector<std::string> words, std::optional<TerminalSize> terminal = {},
                          std::vector<std::string> environment = {"PATH=/usr/bin:/bin", "TERM=dumb"}) {
    ::signal(SIGPIPE, SIG_IGN);
    const std::string first = words.front();
    SessionProgram program{.program = first,
                           .arguments = std::move(words),
                           .environment = std::move(environment),
                           .folder = "/",
                           .terminal = terminal};
    auto process = StartSessionProcess(IMGD_SHIM_PROGRAM, program, kGrace);
    EXPECT_TRUE(process) << process.error().ToString();
    PumpEnds ends;
    ends.process = std::move(*process);
    pump_.emplace(std::move(ends), &inbox_, [this](const v1::SessionFrame& frame) {
      out_ += frame.output();
      err_ += frame.error_output();
      return true;
    });
  }

  void Type(const std::string& input) {
    v1::SessionFrame frame;
    frame.set_input(input);
    Push(std::move(frame));
  }
  /// Is taken before this returns: a second one would wait for it.
  void Push(v1::SessionFrame frame) {
    EXPECT_TRUE(inbox_.Push(std::move(frame)));
    pump_->Step(-1);
  }
  void EndInput() {
    v1::SessionFrame frame;
    frame.set_input_end(true);
    Push(std::move(frame));
  }
  void StepUntil(const std::string& words) {
    while (out_.find(words) == std::string::npos && pump_->Step(-1)) {
    }
    EXPECT_THAT(out_, HasSubstr(words));
  }
  v1::SessionEnd Finish() {
    while (pump_->Step(-1)) {
    }
    return pump_->End();
  }

  SessionInbox inbox_;
  std::string out_, err_;
  std::optional<SessionPump> pump_;
};

TEST(SessionPump, StreamsAndExitCodeAreTheProgramsOwn) {
  RunningProgram program({"sh", "-c", "cat; echo oh >&2; exit 5"});
  program.Type("some words");
  program.StepUntil("words");
  program.EndInput();
  const auto end = program.Finish();
  EXPECT_EQ(program.out_, "some words");
  EXPECT_EQ(program.err_, "oh\n");
  EXPECT_EQ(end.exit_code(), 5U);
  EXPECT_EQ(end.error(), "");
}

TEST(SessionPump, TheEnvironmentIsTheProgramsAndNotItsKeepers) {
  RunningProgram program({"sh", "-c", "echo $LD_PRELOAD; tr '\\0' '\\n' </proc/$PPID/environ; echo END"}, {},
                         {"PATH=/usr/bin:/bin", "LD_PRELOAD=/no-such-library.so"});
  program.Finish();
  EXPECT_THAT(program.out_, StartsWith("/no-such-library.so\n"));
  EXPECT_THAT(program.out_, HasSubstr("END\n"));
  EXPECT_THAT(program.out_.substr(program.out_.find('\n')), Not(HasSubstr("no-such-library")));
}

TEST(SessionPump, ASignalThatEndedItIsNamed) {
  EXPECT_EQ(RunningProgram({"sh", "-c", "kill -KILL $$"}).Finish().signal(), 9U);
}

TEST(SessionPump, AProgramThatIsNotThereIsSaid) {
  const auto end = RunningProgram({"no-such-program"}).Finish();
  EXPECT_EQ(end.exit_code(), 127U);
  EXPECT_THAT(end.error(), HasSubstr("No such file"));
}

TEST(SessionPump, InputThatNobodyReadsHoldsNothingUp) {
  RunningProgram program({"sh", "-c", "exec <&-; echo closed; sleep 0.1"});
  program.StepUntil("closed");
  program.Type(std::string(200'000, 'x'));
  EXPECT_EQ(program.Finish().exit_code(), 0U);
}

TEST(SessionPump, WhoGoesIsMissedAlsoWhereTheProgramReadsNothing) {
  SessionProgram program{.program = "sleep",
                         .arguments = {"sleep", "1000"},
                         .environment = {"PATH=/usr/bin:/bin"},
                         .folder = "/",
                         .terminal = {}};
  PumpEnds ends;
  ends.process = std::move(*StartSessionProcess(IMGD_SHIM_PROGRAM, program, kGrace));
  SessionInbox inbox;
  int asked = 0;
  SessionPump pump(std::move(ends), &inbox, [&](const v1::SessionFrame& frame) {
    EXPECT_EQ(frame.frame_case(), v1::SessionFrame::FRAME_NOT_SET);
    return ++asked < 2;
  });
  v1::SessionFrame input;
  input.set_input(std::string(200'000, 'x'));
  ASSERT_TRUE(inbox.Push(std::move(input)));
  while (pump.Step(-1)) {
  }
  EXPECT_EQ(asked, 2);
  EXPECT_TRUE(pump.gone());
}

TEST(SessionPump, ATerminalHasTheSizeThatItIsGiven) {
  RunningProgram program({"sh"}, TerminalSize{31, 97});
  program.Type("stty size; tty\n");
  program.StepUntil("31 97");
  program.StepUntil("/dev/pts/");
  v1::SessionFrame frame;
  frame.mutable_window()->set_rows(50);
  frame.mutable_window()->set_columns(120);
  program.Push(std::move(frame));
  program.Type("stty size\n");
  program.StepUntil("50 120");
  program.EndInput();
  EXPECT_EQ(program.Finish().exit_code(), 0U);
}

TEST(SessionPump, WhoGoesTakesAllThatBeganWithHim) {
  // It ignores SIGHUP, and leaves its session and parent.
  RunningProgram program({"sh", "-c", "trap '' HUP; setsid sh -c 'echo $$; exec sleep 1000' & wait"});
  program.StepUntil("\n");
  const auto pid = static_cast<pid_t>(std::stol(program.out_));
  const auto stat = ReadProcessStat(pid);
  ASSERT_TRUE(stat);
  program.inbox_.Close();
  program.Finish();
  EXPECT_TRUE(program.pump_->gone());
  EXPECT_FALSE(IsAlive(pid, stat->start_time));
}

TEST(SessionPump, ItEndsWithTheRankThatItIsBeside) {
  const pid_t rank = ::fork();
  if (rank == 0) {
    ::pause();
    ::_exit(0);
  }
  SessionProgram program{.program = "sleep",
                         .arguments = {"sleep", "1000"},
                         .environment = {"PATH=/usr/bin:/bin"},
                         .folder = "/",
                         .terminal = {}};
  PumpEnds ends;
  ends.process = std::move(*StartSessionProcess(IMGD_SHIM_PROGRAM, program, kGrace));
  ends.rank = PidfdOpen(rank);
  ends.rank_name = "rank 0 of job 7";
  SessionInbox inbox;
  SessionPump pump(std::move(ends), &inbox, [](const v1::SessionFrame&) { return true; });
  ::kill(rank, SIGKILL);
  while (pump.Step(-1)) {
  }
  EXPECT_THAT(pump.End().error(), StartsWith("rank 0 of job 7 has ended"));
}

TEST(SessionInbox, OneFrameWaitsAndTheEndLetsWaitersGo) {
  SessionInbox inbox;
  ASSERT_TRUE(inbox.Push({}));
  bool pushed = true;
  std::thread second([&] { pushed = inbox.Push({}); });
  inbox.Close();
  second.join();
  EXPECT_FALSE(pushed);
  EXPECT_TRUE(inbox.Take());
  EXPECT_FALSE(inbox.Take());
}

/// A connection whose far end the test holds.
struct Connection {
  Connection() {
    int fds[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds), 0);
    far = UniqueFd(fds[0]);
    PumpEnds ends;
    ends.process.output = UniqueFd(fds[1]);
    ends.process.input = UniqueFd(::fcntl(fds[1], F_DUPFD_CLOEXEC, 0));
    pump.emplace(std::move(ends), &inbox, [this](const v1::SessionFrame& frame) {
      out += frame.output();
      output_ends = output_ends || frame.has_output_end();
      return true;
    });
  }
  std::string Read() {
    std::array<char, 100> bytes{};
    const ssize_t got = ::read(far.get(), bytes.data(), bytes.size());
    return got < 0 ? "nothing" : std::string(bytes.data(), static_cast<size_t>(got));
  }
  void Push(v1::SessionFrame frame) {
    EXPECT_TRUE(inbox.Push(std::move(frame)));
    pump->Step(-1);
  }

  UniqueFd far;
  SessionInbox inbox;
  std::string out;
  bool output_ends = false;
  std::optional<SessionPump> pump;
};

TEST(SessionPump, AConnectionThatEndsOneWayGoesOnTheOther) {
  v1::SessionFrame end;
  end.set_input_end(true);
  v1::SessionFrame words;
  words.set_input("more");
  Connection asked;  // the person has asked all
  asked.Push(end);
  EXPECT_EQ(asked.Read(), "");
  ASSERT_EQ(::write(asked.far.get(), "answer", 6), 6);
  EXPECT_TRUE(asked.pump->Step(-1));
  EXPECT_EQ(asked.out, "answer");
  asked.far.reset();
  EXPECT_FALSE(asked.pump->Step(-1));
  Connection said;  // the node has said all
  ::shutdown(said.far.get(), SHUT_WR);
  EXPECT_TRUE(said.pump->Step(-1));
  EXPECT_TRUE(said.output_ends);
  said.Push(words);
  EXPECT_EQ(said.Read(), "more");
  said.Push(end);
  EXPECT_FALSE(said.pump->Step(0));
}

TEST(SessionEnvironment, TheAgentsOwnVariablesStayWithIt) {
  const auto environment =
      NodeSessionEnvironment({"NOTIFY_SOCKET=/x", "IMGD_TOKEN=y", "LANG=C", "HOME=/somewhere"});
  EXPECT_EQ(ValueIn(environment, "NOTIFY_SOCKET"), "");
  EXPECT_EQ(ValueIn(environment, "IMGD_TOKEN"), "");
  EXPECT_EQ(ValueIn(environment, "LANG"), "C");
  EXPECT_EQ(ValueIn(environment, "HOME"), "/somewhere");
  EXPECT_NE(ValueIn(environment, "PATH"), "");
  EXPECT_NE(ValueIn(environment, "SHELL"), "");
}

TEST(SessionEnvironment, ARanksIsItsOwnButForTheRunsFolder) {
  ::setenv("IMGD_RUN_DIR", "/x", 1);
  const pid_t rank = ::fork();
  if (rank == 0) {
    ::execlp("sleep", "sleep", "1000", nullptr);
    ::_exit(127);
  }
  ::unsetenv("IMGD_RUN_DIR");
  // Once it is another program, and has the environment of the exec.
  const auto file = [rank](const char* name) {
    return ReadFile(fmt::format("/proc/{}/{}", rank, name)).value_or("");
  };
  while (file("comm") != "sleep\n" || file("environ").empty()) std::this_thread::yield();
  const auto environment = RankSessionEnvironment(rank);
  ::kill(rank, SIGKILL);
  ASSERT_TRUE(environment);
  EXPECT_THAT(*environment, Not(Contains(StartsWith("IMGD_RUN_DIR="))));
  EXPECT_NE(ValueIn(*environment, "PATH"), "");
}

}  // namespace
}  // namespace imgd
