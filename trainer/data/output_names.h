#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "common/error.h"
#include "trainer/data/convert_report.h"
#include "trainer/data/dataset.h"
#include "trainer/data/shard_writer.h"

namespace imgd::data {

/// A name that stays below the folder it is put in: without '/' in front, empty parts, "." and "..". With
/// `no_hidden` a '.' that a part begins with becomes '_'. Empty where nothing is left.
std::string SafeName(std::string_view name, bool no_hidden);

/// What images are called in the output where that is another name than in the source.
using NewNames = std::unordered_map<uint32_t, std::string>;  ///< by the image's number

/// Gives each image a name that is safe and unique in the form: of those that would share one ("a.jpg" and
/// "a.png", whose ending is no part of a key) the later ones, by number, get their ending or a number into it
/// ("a_png.png", "a_2.png"). The report tells of each. `poll` is asked from time to time. Errors: those of
/// `poll`.
Result<NewNames> NameImages(const Dataset& set, const OutputSet& output, const std::function<Status()>& poll,
                            ConvertReport& report);

}  // namespace imgd::data
