#include <algorithm>

#include "trainer/data/convert.h"

namespace imgd::data {
namespace {

tl::unexpected<Error> Refused(std::string message) {
  return tl::unexpected<Error>(Error{.code = ErrorCode::kInvalidArgument, .message = std::move(message)});
}

}  // namespace

Status CheckOptions(const ConvertOptions& options) {
  if (options.jobs < 1 || options.jobs > 1024) return Refused("jobs must be from 1 to 1024");
  if (options.shard_bytes < 1) return Refused("the size of a shard must be at least 1 byte");
  const auto is_plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '.';
  };
  const std::string& name = options.name;
  if (name.empty() || name.size() > 200 || name[0] == '.' || name[0] == '-' ||
      !std::ranges::all_of(name, is_plain)) {
    return Refused(
        fmt::format("'{}' is no name for a set: letters, digits, '_', '-' and '.' are allowed, the "
                    "first no '-' or '.'",
                    name));
  }
  if (options.images.resize < 0) return Refused("the short side must have at least 1 pixel");
  if (options.images.quality < 1 || options.images.quality > 100)
    return Refused("the quality must be from 1 to 100");
  if (options.images.resize > 0 && !options.images.repair) {
    return Refused("images can't be made smaller without being coded anew, which repairs them");
  }
  if (options.first_label < 0 || options.first_label > 1) return Refused("labels begin at 0 or 1");
  return {};
}

}  // namespace imgd::data
