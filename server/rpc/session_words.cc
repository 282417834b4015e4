#include "server/rpc/session_words.h"

#include <fmt/format.h>

#include "common/utf8.h"

namespace imgd {
namespace {

constexpr size_t kMostCommandBytes = 200;

/// The words of a command in a line of text, cut.
std::string LineOf(const v1::SessionCommand& command) {
  std::string line;
  for (const auto& argument : command.arguments()) {
    if (!line.empty()) line += ' ';
    for (const char c : argument) line += c >= 0 && (c < 0x20 || c == 0x7f) ? ' ' : c;
    if (line.size() > kMostCommandBytes) break;
  }
  if (line.size() > kMostCommandBytes) line = line.substr(0, kMostCommandBytes) + "...";
  return ToUtf8(line);
}

}  // namespace

std::string WhatOf(const v1::SessionBegin& begin) {
  std::string what = "a shell";
  if (begin.has_forward()) {
    what = begin.forward().port() == 0 ? "forwarding to TensorBoard"
                                       : fmt::format("forwarding to port {}", begin.forward().port());
  } else if (!begin.command().arguments().empty()) {
    what = fmt::format("`{}`", LineOf(begin.command()));
  }
  if (begin.has_rank())
    what += fmt::format(" beside rank {} of job {}", begin.rank().rank(), begin.rank().job_id());
  return what;
}

std::string HowOf(const v1::SessionEnd& end) {
  if (!end.error().empty()) return ToUtf8(end.error());
  return end.signal() != 0 ? fmt::format("signal {}", end.signal())
                           : fmt::format("exit code {}", end.exit_code());
}

}  // namespace imgd
