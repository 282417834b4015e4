#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/doctor/clock.h"
#include "common/doctor/reach.h"

namespace imgd::cli {

/// What imgcli found out about itself and its imgd.
struct ClientFacts {
  struct Node {
    std::string name;
    std::string agent_version;
    std::string state;     ///< "ready", "sick", ... as imgcli nodes has it
    std::string problems;  ///< of its health checks; empty: none
    bool is_reached = true;
    bool clock_is_off = false;
    int devices = 0;
  };
  std::string version;         ///< of imgcli
  std::string address_error;   ///< why there is no address of imgd; empty: there is one
  std::string address_source;  ///< "from IMGD_SERVER"
  doctor::Reach imgd;
  bool tls = true;           ///< it is spoken to by TLS
  bool is_loopback = false;  ///< it is on this machine
  bool has_token = true;
  std::string tls_error;     ///< why no connection by TLS comes about; empty: one does, or none was tried
  std::string answer_error;  ///< why imgd gave no answer; empty: it did
  std::string warning;       ///< what it says is wrong with itself
  std::vector<Node> nodes;   ///< where it answered
  doctor::ClockFacts clock;
  std::string config_path;      ///< of the user's file; empty where there is none
  bool config_is_open = false;  ///< others may write to it
};

/// All checks of a client. Pure.
std::vector<doctor::Line> ExamineClient(const ClientFacts& facts);

}  // namespace imgd::cli
