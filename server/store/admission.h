#pragma once

#include <cstdint>
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
  std::string token;     ///< id of the join token, or of the EC2 instance that it is
  WallTime joined;
  WallTime expires;  ///< of its last certificate
  bool revoked = false;
};

/// An EC2 instance, as EC2 itself says.
struct Ec2Instance {
  std::string id;  ///< "i-0123456789abcdef0"
  std::string account;
  std::string region;
  std::string image;  ///< "ami-0123456789abcdef0"
  WallTime started;   ///< last; a stop and a start later it is another time
};

/// What became of an instance's leave to join by its identity document. The numbers are those of the
/// database.
enum class InstanceLeave : uint8_t { kUsed = 0, kRevoked = 1, kMayRejoin = 2 };

/// An instance that joined.
struct InstanceRecord {
  Ec2Instance instance;
  std::string node;
  std::string key_hash;  ///< as in NodeKeyRecord
  WallTime joined;
  InstanceLeave leave = InstanceLeave::kUsed;
};

struct Admissions {
  std::map<std::string, JoinTokenRecord> tokens;    ///< by id
  std::map<std::string, NodeKeyRecord> nodes;       ///< by name
  std::map<std::string, InstanceRecord> instances;  ///< by id
};

}  // namespace imgd
