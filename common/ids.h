#pragma once

#include <fmt/format.h>

#include <compare>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>

namespace imgd {

/// A number that can't be mixed up with another kind of number.
template <typename Tag>
class Id {
 public:
  constexpr Id() = default;
  constexpr explicit Id(uint64_t value) : value_(value) {}
  constexpr uint64_t value() const { return value_; }
  constexpr auto operator<=>(const Id&) const = default;

 private:
  uint64_t value_ = 0;
};

/// The daemon's number for a job, from 1.
using JobId = Id<struct JobIdTag>;
/// Number of a job's start; only grows, 0 before the first. It fences off older starts (ARCHITECTURE.md).
using Generation = Id<struct GenerationTag>;

/// A node's name, unique among agents.
class NodeId {
 public:
  NodeId() = default;
  explicit NodeId(std::string name) : name_(std::move(name)) {}
  const std::string& name() const { return name_; }
  auto operator<=>(const NodeId&) const = default;

 private:
  std::string name_;
};

}  // namespace imgd

template <typename Tag>
struct fmt::formatter<imgd::Id<Tag>> : fmt::formatter<uint64_t> {
  auto format(imgd::Id<Tag> id, format_context& ctx) const {
    return formatter<uint64_t>::format(id.value(), ctx);
  }
};

template <>
struct fmt::formatter<imgd::NodeId> : fmt::formatter<std::string> {
  auto format(const imgd::NodeId& id, format_context& ctx) const {
    return formatter<std::string>::format(id.name(), ctx);
  }
};
