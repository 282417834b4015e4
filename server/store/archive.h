#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include "common/error.h"

/// Tar archives as backups need them: plain files with short names. Format: POSIX.1-2017, "pax - ustar
/// Interchange Format", and GNU tar's sizes of more than 8 GiB.
namespace imgd {

inline constexpr size_t kTarBlock = 512;

/// What stands before a file's bytes, which are followed by TarPadding(). `name` has less than 100 bytes.
std::string TarHeader(std::string_view name, uint64_t size, int64_t time_seconds);
std::string TarPadding(uint64_t size);
/// What the archive ends with.
std::string TarEnd();

/// Gives each file's name and size to `begin`, then its bytes, piece by piece, to `bytes`. Errors: kDataLoss
/// for what is no such archive, and for one that is cut short, naming it; those of the file; and what the two
/// return.
Status ReadTar(const std::filesystem::path& path,
               const std::function<Status(const std::string& name, uint64_t size)>& begin,
               const std::function<Status(std::string_view piece)>& bytes);

}  // namespace imgd
