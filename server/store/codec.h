#pragma once

#include <string>
#include <vector>

#include "common/error.h"
#include "server/core/sweep.h"
#include "server/core/types.h"

/// The JSON columns of state.db.
namespace imgd {

std::string EncodeRun(const Run& run);
/// Errors: kDataLoss when the text is not what EncodeRun makes.
Result<Run> DecodeRun(const std::string& text);

std::string EncodeDevices(const std::vector<Device>& devices);
Result<std::vector<Device>> DecodeDevices(const std::string& text);

std::string EncodeFolders(const std::vector<SharedFolder>& folders);
Result<std::vector<SharedFolder>> DecodeFolders(const std::string& text);

std::string EncodeLabels(const Labels& labels);
Result<Labels> DecodeLabels(const std::string& text);

/// "{}" for none.
std::string EncodeNeeds(const Needs& needs);
Result<Needs> DecodeNeeds(const std::string& text);

std::string EncodeAfter(const std::vector<Dependency>& after);
Result<std::vector<Dependency>> DecodeAfter(const std::string& text);

std::string EncodeSettings(const std::vector<SweepSetting>& settings);
Result<std::vector<SweepSetting>> DecodeSettings(const std::string& text);

/// Empty for none.
std::string EncodeHalving(const std::optional<Halving>& halving);
Result<std::optional<Halving>> DecodeHalving(const std::string& text);

/// "{}" for none.
std::string EncodeCrashes(const Crashes& crashes);
Result<Crashes> DecodeCrashes(const std::string& text);

std::string EncodeStrikes(const std::vector<Strike>& strikes);
Result<std::vector<Strike>> DecodeStrikes(const std::string& text);

std::string EncodeTexts(const std::vector<std::string>& texts);
Result<std::vector<std::string>> DecodeTexts(const std::string& text);

}  // namespace imgd
