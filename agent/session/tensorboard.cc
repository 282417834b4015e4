#include "agent/session/tensorboard.h"

#include <unistd.h>

#include "agent/network.h"
#include "agent/program.h"
#include "agent/session/node_port.h"
#include "common/clock.h"
#include "common/utf8.h"

namespace imgd {
namespace {

/// It loads for seconds, and longer from a disk that is shared.
constexpr auto kPatience = std::chrono::seconds(90);
constexpr int kLookMs = 100;

bool Listens(uint32_t port) {
  return ConnectToPort(port, -1, std::chrono::milliseconds(kLookMs)).has_value();
}

}  // namespace

Result<TensorBoardStart> TensorBoardFor(const std::string& program, const std::string& figures) {
  std::vector<std::string> inherited;
  for (char** entry = environ; *entry != nullptr; ++entry) inherited.emplace_back(*entry);
  TensorBoardStart start;
  start.program.environment = NodeSessionEnvironment(inherited);
  auto found = ResolveProgram(program.empty() ? "tensorboard" : program, start.program.environment);
  if (!found) {
    return tl::unexpected(
        Error{.code = ErrorCode::kFailedPrecondition,
              .message = fmt::format("there is no TensorBoard on the node: {}", found.error().message),
              .hint = "pip install tensorboard there, and name its program in agent.yaml (tensorboard)"});
  }
  {
    IMGD_ASSIGN(const Listener listener, ListenOn("127.0.0.1"));
    start.port = listener.port;
  }
  start.program.program = *found;
  start.program.arguments = {
      *found, "--logdir", figures, "--host", "127.0.0.1", "--port", std::to_string(start.port)};
  start.program.folder = "/";
  return start;
}

bool AwaitTensorBoard(SessionPump& pump, uint32_t port) {
  const Instant give_up = std::chrono::steady_clock::now() + kPatience;
  while (pump.Step(kLookMs)) {
    if (Listens(port)) return true;
    if (std::chrono::steady_clock::now() < give_up) continue;
    pump.EndBecause("TensorBoard did not listen on its port in time");
  }
  pump.EndBecause(fmt::format("TensorBoard ended before it listened: {}", ToUtf8(pump.Tail())));
  return false;
}

}  // namespace imgd
