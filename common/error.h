#pragma once

#include <fmt/core.h>

#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <utility>

namespace imgd {

/// What kind of failure it is. One enum for gRPC status, HTTP status and exit code (docs/exit-codes.md).
enum class ErrorCode {
  kInvalidArgument,     ///< the caller's input is at fault; a retry would not help
  kNotFound,            ///< no such job, node, file
  kAlreadyExists,       ///< taken already: a name, a port, a folder
  kFailedPrecondition,  ///< not in this state
  kPermissionDenied,    ///< the operating system or the daemon refuses
  kResourceExhausted,   ///< disk, memory, descriptors or a limit of ours
  kUnavailable,         ///< the other side can't be reached; a retry may help
  kDeadlineExceeded,    ///< took too long
  kDataLoss,            ///< a checksum or format is wrong
  kCancelled,           ///< somebody asked for the end
  kInternal,            ///< a fault of ours
};

/// A failure in words that the person at the keyboard can act on.
struct Error {
  ErrorCode code = ErrorCode::kInternal;
  std::string message;  ///< one sentence, no full stop: what was wrong, what was found, what is allowed
  std::string file;     ///< file that the error is in, if it is in one
  int line = 0;         ///< from 1; 0 when unknown
  int column = 0;       ///< from 1; 0 when unknown
  std::string hint;     ///< what to do, or the nearest valid name; may be empty

  /// "file:line:column: message (hint)", leaving out what is not known.
  std::string ToString() const;
};

template <typename T>
using Result = tl::expected<T, Error>;
using Status = Result<void>;

/// An error from a code and fmt arguments: `return Fail(ErrorCode::kNotFound, "no job {}", id);`
template <typename... Args>
tl::unexpected<Error> Fail(ErrorCode code, fmt::format_string<Args...> format, Args&&... args) {
  return tl::unexpected<Error>(
      Error{.code = code, .message = fmt::format(format, std::forward<Args>(args)...)});
}

/// An error from errno: "cannot open /x: Permission denied", with the code that fits `saved_errno`.
tl::unexpected<Error> FailErrno(int saved_errno, std::string_view what);

/// Exit code of a program that ends by this error: 2 bad input, 3 not found, 4 unavailable, 5 refused, 1
/// else.
int ExitCodeOf(ErrorCode code);

/// "INVALID_ARGUMENT" and so on.
std::string_view NameOf(ErrorCode code);

}  // namespace imgd

/// Returns from the function with the error of `expr`, a Status or Result, if it has one.
#define IMGD_TRY(expr)                                                        \
  do {                                                                        \
    if (auto imgd_status = (expr); !imgd_status) {                            \
      return ::tl::unexpected<::imgd::Error>(std::move(imgd_status).error()); \
    }                                                                         \
  } while (false)

#define IMGD_CONCAT_(a, b) a##b
#define IMGD_CONCAT(a, b) IMGD_CONCAT_(a, b)

/// `IMGD_ASSIGN(auto x, F());` is x = *F(), or returns F's error.
#define IMGD_ASSIGN(lhs, expr) IMGD_ASSIGN_(IMGD_CONCAT(imgd_result_, __LINE__), lhs, expr)
#define IMGD_ASSIGN_(tmp, lhs, expr)                                        \
  auto tmp = (expr);                                                        \
  if (!tmp) return ::tl::unexpected<::imgd::Error>(std::move(tmp).error()); \
  lhs = std::move(*tmp)
