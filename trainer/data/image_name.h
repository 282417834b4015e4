#pragma once

#include <string>
#include <string_view>

namespace imgd::data {

/// Whether a file's ending, without its dot, is an image's: jpg, jpeg or png, in capitals or not.
bool IsImageEnding(std::string_view ending);

/// Whether an ending is that of images in a form that is not read: webp, gif, tif and their like.
bool IsUnreadImageEnding(std::string_view ending);

/// Whether the file's name, behind its last dot, ends as an image's.
bool HasImageEnding(std::string_view name);

/// `name` without the ending of an image's file; other endings stay.
std::string_view WithoutImageEnding(std::string_view name);

/// `name` itself if it has the ending of an image's file, else with ".JPEG".
std::string WithImageEnding(std::string_view name);

}  // namespace imgd::data
