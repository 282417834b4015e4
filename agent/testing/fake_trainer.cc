// A stand-in for imgtrain that takes commands: listens on control.<local_rank> as trainer.proto says, and
// does what job.yaml, "name: WORD", says: "obeys" saves and ends with 11, "refuses" answers with an error,
// "ignores" answers and goes on. SIGTERM ends it.
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>

#include "imgd/v1/trainer.pb.h"

namespace {

std::string ReadExactly(int fd, size_t size) {
  std::string data(size, '\0');
  size_t have = 0;
  while (have < size) {
    const ssize_t n = ::recv(fd, data.data() + have, size - have, 0);
    if (n <= 0) return "";
    have += static_cast<size_t>(n);
  }
  return data;
}

imgd::v1::TrainerCommand ReadCommand(int fd) {
  const std::string header = ReadExactly(fd, 4);
  imgd::v1::TrainerCommand command;
  if (!header.empty()) command.ParseFromString(ReadExactly(fd, static_cast<unsigned char>(header[0])));
  return command;
}

void Reply(int fd, const std::string& error) {
  imgd::v1::TrainerReply reply;
  reply.set_error(error);
  std::string body = reply.SerializeAsString();
  body.insert(0, {static_cast<char>(body.size()), 0, 0, 0});
  (void)!::write(fd, body.data(), body.size());
}

}  // namespace

int main(int, char** argv) {
  std::string key;
  std::string word;
  std::ifstream(argv[1]) >> key >> word;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::snprintf(address.sun_path, sizeof address.sun_path, "control.%s", std::getenv("LOCAL_RANK"));
  if (::chdir(std::getenv("IMGD_RUN_DIR")) != 0) return 1;
  const int listener = ::socket(AF_UNIX, SOCK_STREAM, 0);
  if (::bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) return 1;
  ::listen(listener, 4);
  std::puts("ready");
  std::fflush(stdout);
  const int agent = ::accept(listener, nullptr, nullptr);
  const auto command = ReadCommand(agent);
  if (!command.stop().checkpoint_first()) return 1;
  Reply(agent, word == "refuses" ? "no step is done yet" : "");
  std::puts(word == "obeys" ? "saved" : "going on");
  std::fflush(stdout);
  if (word == "obeys") return 11;
  while (true) ::pause();
}
