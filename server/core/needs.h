#pragma once

#include <array>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "server/core/types.h"

/// What a gang asks of its nodes and devices beside their number.
namespace imgd {

/// True where the words of `wanted` stand next to each other in the device's name, whatever their case:
/// "H100" and "h100 80gb" are in "NVIDIA H100 80GB HBM3", "A10" is not in "NVIDIA A100-SXM4-40GB".
bool IsModel(std::string_view name, std::string_view wanted);

/// False where every device does.
bool AsksOfDevices(const Needs& needs);

/// A rank of the gang may have this device.
bool Does(const Needs& needs, const Device& device);

/// The gang may have a part on a node of these labels.
bool Does(const Needs& needs, const Labels& labels);

/// What it asks of a device, as a noun: "H100 or A100 of at least 40 GiB", "GPU"; "device" where nothing.
std::string NounFor(const Needs& needs, bool plural);

/// What it asks of a node, to go after the noun: ", labelled zone=us-east-1a and not labelled spot=true";
/// empty where nothing.
std::string LabelsFor(const Needs& needs);

/// How far apart nodes are is told by these labels, from the widest to the narrowest.
inline constexpr std::array<const char*, 3> kTopology = {"zone", "fabric", "placement_group"};

}  // namespace imgd
