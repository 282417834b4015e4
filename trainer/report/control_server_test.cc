#include "trainer/report/control_server.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <fstream>

#include "common/files.h"
#include "imgd/v1/trainer.pb.h"
#include "trainer/report/events_file.h"

namespace imgd::report {
namespace {

namespace fs = std::filesystem;

/// One who sends commands.
class Client {
 public:
  explicit Client(const fs::path& path) : fd_(::socket(AF_UNIX, SOCK_STREAM, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
    EXPECT_EQ(::connect(fd_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  }

  void Send(const std::string& bytes) { EXPECT_TRUE(WriteAll(fd_.get(), bytes, "socket").has_value()); }

  v1::TrainerReply Reply() {
    std::string head = Read(4);
    v1::TrainerReply reply;
    EXPECT_TRUE(reply.ParseFromString(Read(static_cast<unsigned char>(head[0]))));
    return reply;
  }

  bool Closed() {
    char byte = 0;
    return ::recv(fd_.get(), &byte, 1, 0) == 0;
  }

 private:
  std::string Read(size_t bytes) {
    std::string out(bytes, '\0');
    // recv(2) would wait even for nothing, and a reply without an error is nothing.
    if (bytes > 0) {
      EXPECT_EQ(::recv(fd_.get(), out.data(), bytes, MSG_WAITALL), static_cast<ssize_t>(bytes));
    }
    return out;
  }

  UniqueFd fd_;
};

std::string StopCommand(bool checkpoint_first) {
  v1::TrainerCommand command;
  command.mutable_stop()->set_checkpoint_first(checkpoint_first);
  return Frame(command.SerializeAsString());
}

std::string CheckpointCommand() {
  v1::TrainerCommand command;
  command.mutable_checkpoint();
  return Frame(command.SerializeAsString());
}

class Control : public testing::Test {
 protected:
  Control() {
    std::string pattern = (fs::temp_directory_path() / "control-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
  }
  ~Control() override {
    server_.reset();
    fs::remove_all(folder_);
  }

  void Start(const fs::path& folder) {
    auto started = ControlServer::Start(folder, 0,
                                        {.checkpoint = [this] { ++checkpoints_; },
                                         .stop = [this](bool first) { (first ? saved_stops_ : stops_)++; },
                                         .profile = [this](uint32_t steps) { profiled_ = steps; }});
    ASSERT_TRUE(started.has_value()) << started.error().ToString();
    server_ = std::move(*started);
  }

  fs::path folder_;
  std::atomic<int> checkpoints_ = 0, stops_ = 0, saved_stops_ = 0;
  std::atomic<uint32_t> profiled_ = 0;
  std::unique_ptr<ControlServer> server_;
};

TEST_F(Control, TakesCommandsFromSeveralConnectionsAndAnswersEach) {
  Start(folder_);
  Client one(folder_ / "control.0");
  Client two(folder_ / "control.0");
  two.Send(StopCommand(true));
  EXPECT_EQ(two.Reply().error(), "");
  one.Send(CheckpointCommand() + StopCommand(false));
  EXPECT_EQ(one.Reply().error(), "");
  EXPECT_EQ(one.Reply().error(), "");
  EXPECT_EQ(checkpoints_, 1);
  EXPECT_EQ(stops_, 1);
  EXPECT_EQ(saved_stops_, 1);
}

TEST_F(Control, AProfileIsOfSomeSteps) {
  Start(folder_);
  Client client(folder_ / "control.0");
  v1::TrainerCommand command;
  command.mutable_profile()->set_steps(0);
  client.Send(Frame(command.SerializeAsString()));
  EXPECT_EQ(client.Reply().error(), "a profile of no steps");
  command.mutable_profile()->set_steps(7);
  client.Send(Frame(command.SerializeAsString()));
  EXPECT_EQ(client.Reply().error(), "");
  EXPECT_EQ(profiled_, 7U);
}

TEST_F(Control, ACommandMayComeInPieces) {
  Start(folder_);
  Client client(folder_ / "control.0");
  for (const char byte : CheckpointCommand()) client.Send(std::string(1, byte));
  EXPECT_EQ(client.Reply().error(), "");
}

TEST_F(Control, UnknownCommandsAreRefusedAndTheConnectionGoesOn) {
  Start(folder_);
  Client client(folder_ / "control.0");
  client.Send(Frame(""));
  EXPECT_EQ(client.Reply().error(), "a command that this trainer does not know");
  client.Send(Frame("\xff\xff"));
  EXPECT_EQ(client.Reply().error(), "not a TrainerCommand");
  client.Send(CheckpointCommand());
  EXPECT_EQ(client.Reply().error(), "");
}

TEST_F(Control, ACommandThatIsTooLongEndsTheConnection) {
  Start(folder_);
  Client client(folder_ / "control.0");
  client.Send(std::string("\xff\xff\xff\xff", 4));
  EXPECT_NE(client.Reply().error(), "");
  EXPECT_TRUE(client.Closed());
}

TEST_F(Control, ReplacesTheSocketOfAnEarlierProcess) {
  std::ofstream(folder_ / "control.0") << "stale";
  Start(folder_);
  Client client(folder_ / "control.0");
  client.Send(CheckpointCommand());
  EXPECT_EQ(client.Reply().error(), "");
}

TEST_F(Control, TheFoldersPathMayBeLongerThanASocketsMay) {
  const fs::path deep = folder_ / std::string(120, 'd');
  fs::create_directories(deep);
  Start(deep);
  fs::create_symlink(deep, folder_ / "s");
  Client client(folder_ / "s" / "control.0");
  client.Send(CheckpointCommand());
  EXPECT_EQ(client.Reply().error(), "");
}

}  // namespace
}  // namespace imgd::report
