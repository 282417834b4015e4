#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "common/clock.h"
#include "common/error.h"
#include "server/auth/ec2_config.h"
#include "server/store/admission.h"

/// Which EC2 instance a machine is, by its signed instance identity document
/// (https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/verify-iid.html).
namespace imgd {

/// Which instances may join, and by whose signatures they are known.
struct Ec2Rules {
  std::set<std::string> accounts;
  std::map<std::string, std::vector<std::string>>
      regions;                      ///< by name, the certificates that sign there, PEM
  std::set<std::string> instances;  ///< empty: any
  std::set<std::string> images;     ///< empty: any
  Duration most_age{};              ///< since an instance was started; zero: it does not matter
};

/// Reads the certificates. Errors: kInvalidArgument for a file without one, those of the files; each naming
/// the region.
Result<Ec2Rules> LoadEc2Rules(const Ec2JoinConfig& config);

/// The instance that the document is of. `document` and `signature`: as in Ec2Identity of enrol.proto.
/// The region that the document names says which certificates may have signed it; nothing else of it is
/// looked at before that. Errors: kPermissionDenied, with nothing in it that was not signed but a region.
Result<Ec2Instance> IdentifyInstance(const Ec2Rules& rules, const std::string& document,
                                     const std::string& signature);

/// Whether the rules let the instance in, but for its age. Errors: kPermissionDenied.
Status CheckInstance(const Ec2Rules& rules, const Ec2Instance& instance);

}  // namespace imgd
