#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "common/error.h"
#include "common/ids.h"

namespace imgd {

/// Where somebody is in the logs of a job's ranks: `next` and `previous` of ListLogs.
struct LogPlaces {
  Generation generation;
  std::map<uint32_t, uint64_t> lines;  ///< a line's number by rank
};

/// "GENERATION-RANK.LINE-RANK.LINE", as it stands in an address.
std::string EncodePlaces(const LogPlaces& places);
/// Errors: kInvalidArgument, naming `field`.
Result<LogPlaces> DecodePlaces(std::string_view field, std::string_view text);

}  // namespace imgd
