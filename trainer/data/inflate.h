#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "common/error.h"
#include "trainer/data/source.h"

namespace imgd::data {

/// Opens a local file; where it is packed by gzip, what is read is its content, unpacked as it is read and
/// never kept: fast for one who goes forward, from the start again for one who goes back. The size of such a
/// source is not known before its end: size() is the most that it can be, at most 8 GiB, and reading past its
/// end is kDataLoss. Errors: those of OpenFileSource; of ReadAt: kDataLoss for what is no gzip file, or is
/// cut short. Format: RFC 1952.
Result<std::shared_ptr<Source>> OpenUnpacked(const std::string& path);

/// Unpacks zlib's format (RFC 1950). Errors: kDataLoss when the bytes are not that, are cut short, or become
/// more than `most_bytes`.
Result<std::string> InflateZlib(std::span<const uint8_t> packed, size_t most_bytes);

}  // namespace imgd::data
