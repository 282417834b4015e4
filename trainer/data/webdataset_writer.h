#pragma once

#include <string>
#include <string_view>

namespace imgd::data {

/// What the parts of one sample share: the image's name without ending. WebDataset cuts at the first dot of
/// the last part, so that dots in it become '_'.
std::string WebDatasetKeyOf(std::string_view name);

}  // namespace imgd::data
