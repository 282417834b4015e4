#pragma once

#include <string_view>

namespace imgd {

/// Figures of a GPU, by the names under which `DeviceReading.error` has those that could not be read.
inline constexpr std::string_view kBusyFigure = "utilisation";
inline constexpr std::string_view kMemoryFigure = "memory";
inline constexpr std::string_view kPowerFigure = "power";
inline constexpr std::string_view kTemperatureFigure = "temperature";
inline constexpr std::string_view kSmClockFigure = "SM clock";

/// Whether a figure was read, by the reading's `error`: a list of those that were not ("power can't be read:
/// Not Supported; memory ..."), or why none was ("the driver does not answer").
bool WasRead(std::string_view figure, std::string_view error);

}  // namespace imgd
