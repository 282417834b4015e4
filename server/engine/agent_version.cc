#include "server/engine/agent_version.h"

#include "common/release.h"

namespace imgd {

Status CheckAgentVersion(std::string_view imgd, std::string_view agent) {
  std::string why = WhyNotFit({"imgd", imgd}, {"imgagent", agent}, "agents");
  if (why.empty()) return {};
  return tl::unexpected(Error{.code = ErrorCode::kFailedPrecondition,
                              .message = std::move(why),
                              .hint = FitOf(imgd, agent) == ReleaseFit::kTooNew
                                          ? "upgrade imgd first, then the nodes"
                                          : "install imgd's version of imgagent on the node"});
}

}  // namespace imgd
