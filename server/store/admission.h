#pragma once

#include <map>
#include <string>
#include <vector>

#include "common/clock.h"

/// How nodes join by TLS, as it is stored.
namespace imgd {

struct JoinUse {
  std::string node;
  std::string address;  ///< where it called from
  WallTime at;
};

/// Leave for so many nodes to join. The token itself is not kept.
struct JoinTokenRecord {
  std::string id;    ///< 8 hexadecimal digits
  std::string hash;  ///< SHA-256 of its secret, lower-case hexadecimal
  std::string owner;
  uint32_t uses = 1;
  uint32_t uses_left = 1;
  WallTime created;
  WallTime expires;
  std::vector<JoinUse> joined;
};

/// The key that a node joined with.
struct NodeKeyRecord {
  std::string node;
  std::string agent_id;
  std::string key_hash;  ///< SHA-256 of its public half, lower-case hexadecimal
  std::string token;     ///< id of the join token
  WallTime joined;
  WallTime expires;  ///< of its last certificate
  bool revoked = false;
};

struct Admissions {
  std::map<std::string, JoinTokenRecord> tokens;  ///< by id
  std::map<std::string, NodeKeyRecord> nodes;     ///< by name
};

}  // namespace imgd
