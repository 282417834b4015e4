#include "server/rpc/log_places.h"

#include <fmt/format.h>

#include <charconv>
#include <iterator>

namespace imgd {
namespace {

constexpr size_t kMostShownOfPlaces = 100;

template <typename T>
bool TakePlace(std::string_view& text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return false;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return true;
}

bool TakeChar(std::string_view& text, char c) {
  if (!text.starts_with(c)) return false;
  text.remove_prefix(1);
  return true;
}

}  // namespace

std::string EncodePlaces(const LogPlaces& places) {
  std::string out = fmt::format("{}", places.generation.value());
  for (const auto& [rank, line] : places.lines) fmt::format_to(std::back_inserter(out), "-{}.{}", rank, line);
  return out;
}

Result<LogPlaces> DecodePlaces(std::string_view field, std::string_view text) {
  const auto whole = text;
  uint64_t generation = 0;
  bool right = TakePlace(text, generation);
  LogPlaces out{.generation = Generation(generation)};
  while (right && !text.empty()) {
    uint32_t rank = 0;
    uint64_t line = 0;
    right = TakeChar(text, '-') && TakePlace(text, rank) && TakeChar(text, '.') && TakePlace(text, line);
    out.lines[rank] = line;
  }
  if (right) return out;
  return Fail(ErrorCode::kInvalidArgument, "{}: found '{}'; what an answer gave is expected", field,
              whole.substr(0, kMostShownOfPlaces));
}

}  // namespace imgd
