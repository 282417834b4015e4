#include "agent/trainer_client.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>

#include "common/files.h"

namespace imgd {

Status SendToTrainer(const RunDir& dir, uint32_t local_rank, const v1::TrainerCommand& command) {
  const std::string body = command.SerializeAsString();
  std::string frame;
  for (size_t i = 0; i < 4; ++i) frame.push_back(static_cast<char>(body.size() >> (8 * i) & 0xFF));
  frame += body;
  // By the folder's descriptor: the path of the folder may be longer than a socket's may be.
  const auto ranks = dir.Ranks();
  const UniqueFd folder(::open(ranks.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!folder.valid()) return FailErrno(errno, fmt::format("cannot open {}", ranks.native()));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const auto path = fmt::format("/proc/self/fd/{}/{}", folder.get(), ControlSocket(local_rank));
  std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
  const UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid() || ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    return FailErrno(errno,
                     fmt::format("cannot connect to {}", (ranks / ControlSocket(local_rank)).native()));
  }
  if (::send(fd.get(), frame.data(), frame.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(frame.size())) {
    return FailErrno(errno, "the trainer's control socket takes no command");
  }
  return {};
}

}  // namespace imgd
