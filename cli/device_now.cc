#include "cli/device_now.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <vector>

#include "cli/node_text.h"
#include "common/device_figures.h"

namespace imgd::cli {

bool DeviceNow::IsKnown() const {
  return std::isfinite(busy_ratio) || std::isfinite(memory_used_bytes) || std::isfinite(watts) ||
         std::isfinite(celsius);
}

DeviceNow NowOf(const v1::Node& node, const v1::Device& device) {
  if (!IsConnected(node) || !device.has_reading() || device.memory_bytes() == 0) return {NAN, NAN, NAN, NAN};
  const auto& reading = device.reading();
  const auto read = [&](std::string_view figure, double value) {
    return WasRead(figure, reading.error()) ? value : NAN;
  };
  return {.busy_ratio = read(kBusyFigure, reading.busy_ratio()),
          .memory_used_bytes = read(kMemoryFigure, static_cast<double>(reading.memory_used_bytes())),
          .watts = read(kPowerFigure, reading.power_watts()),
          .celsius = read(kTemperatureFigure, reading.temperature_celsius())};
}

std::string TroubleOf(const v1::Device& device) {
  const auto& reading = device.reading();
  std::vector<std::string> parts;
  if (!reading.error().empty()) parts.push_back(reading.error());
  if (reading.xid() != 0) parts.push_back(fmt::format("the driver reported Xid {}", reading.xid()));
  if (!reading.throttled_by().empty()) parts.push_back("held back by " + reading.throttled_by());
  return fmt::format("{}", fmt::join(parts, ", "));
}

void KnownSum::Add(double value) {
  if (!std::isfinite(value)) return;
  sum += value;
  ++count;
}

double KnownSum::Sum() const { return count > 0 ? sum : NAN; }
double KnownSum::Mean() const { return count > 0 ? sum / count : NAN; }

}  // namespace imgd::cli
