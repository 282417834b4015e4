#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "common/doctor/verdict.h"

namespace imgd::doctor {

/// How far one gets towards a server.
struct Reach {
  enum class Outcome {
    kAnswers,     ///< speaks HTTP/2 in plain text, as gRPC does
    kAnswersTls,  ///< speaks TLS
    kOtherWords,  ///< accepts, and speaks something else
    kSilent,      ///< accepts, and says nothing
    kNoName,      ///< its name has no address
    kRefused,     ///< nobody listens on the port
    kNoAnswer,    ///< packets get lost: a firewall, or a machine that is off
    kNoWay,       ///< no route
    kBadAddress,  ///< no HOST:PORT
  };
  std::string server;                  ///< HOST:PORT
  std::vector<std::string> addresses;  ///< that the name has
  Outcome outcome = Outcome::kBadAddress;
  std::string error;  ///< the system's words
};

/// Resolves the name and connects to the first address that answers, each step in `limit`.
Reach TryToReach(const std::string& server, std::chrono::milliseconds limit);

/// Whether the server's name has addresses.
Verdict JudgeName(const Reach& reach);
/// Whether something that may be imgd listens there.
Verdict JudgePort(const Reach& reach);

}  // namespace imgd::doctor
