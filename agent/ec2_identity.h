#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <string>

#include "common/error.h"

namespace imgd {

/// Which EC2 instance this machine is, and what shows it to others.
struct Ec2Identity {
  std::string document;   ///< the instance identity document, JSON
  std::string signature;  ///< its PKCS #7 signature, Base64; empty where it is from this node's own folder
  std::string instance;   ///< "i-0123456789abcdef0"
  std::map<std::string, std::string> labels;  ///< instance_type, zone and region
};

/// Asks EC2 what this machine is; may take seconds.
using AskEc2 = std::function<Result<Ec2Identity>()>;

/// The instance metadata service's address: AWS_EC2_METADATA_SERVICE_ENDPOINT, as AWS's own programs have it,
/// or that of every instance.
std::string Ec2MetadataAddress();

/// Errors: kUnavailable where there is no such service, or it has no such document; kDataLoss for one that is
/// none.
Result<Ec2Identity> FetchEc2Identity(const std::string& endpoint);

/// As FetchEc2Identity, and keeps the document in `folder`; without the service it is the one that was kept.
/// Errors: as there; kFailedPrecondition where another instance's is kept, as in a machine that was made of
/// an image of a node: then its key, and its runs, are that one's too.
Result<Ec2Identity> OwnEc2Identity(const std::string& endpoint, const std::filesystem::path& folder);

}  // namespace imgd
