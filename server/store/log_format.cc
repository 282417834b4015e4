#include "server/store/log_format.h"

#include <fmt/format.h>

#include <charconv>

namespace imgd {
namespace {

/// Takes a number and the tab after it off the front.
template <typename T>
std::optional<T> TakeNumber(std::string_view& text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end == text.data() + text.size() || *end != '\t') return std::nullopt;
  text.remove_prefix(static_cast<size_t>(end - text.data()) + 1);
  return value;
}

}  // namespace

std::string EncodeLine(const StoredLine& line) {
  std::string out = fmt::format("{}\t{}\t{}\t", line.number, line.time_us, line.is_stderr ? 'E' : 'O');
  for (const char c : line.text) {
    if (c == '\n') {
      out += "\\n";
    } else if (c == '\\') {
      out += "\\\\";
    } else {
      out += c;
    }
  }
  out += '\n';
  return out;
}

std::optional<StoredLine> DecodeLine(std::string_view text) {
  StoredLine line;
  const auto number = TakeNumber<uint64_t>(text);
  if (!number) return std::nullopt;
  const auto time = TakeNumber<int64_t>(text);
  if (!time || text.size() < 2 || text[1] != '\t') return std::nullopt;
  line.number = *number;
  line.time_us = *time;
  line.is_stderr = text[0] == 'E';
  text.remove_prefix(2);
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 1 < text.size()) {
      ++i;
      line.text += text[i] == 'n' ? '\n' : text[i];
    } else {
      line.text += text[i];
    }
  }
  return line;
}

std::filesystem::path LogFile(const std::filesystem::path& folder, const LogStream& stream,
                              uint64_t segment) {
  const std::string name =
      segment == 0 ? fmt::format("{}.log", stream.rank) : fmt::format("{}.log.{}", stream.rank, segment);
  return folder / fmt::format("{}", stream.run.job) / fmt::format("{}", stream.run.generation) / name;
}

}  // namespace imgd
