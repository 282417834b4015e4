#pragma once

#include <optional>
#include <string>
#include <string_view>

/// Where paths of job files lead, by their text alone: links are not followed. Pure.
namespace imgd {

/// As the system reads it, behind the host of a URL too: "/data/../etc" is "/etc". One that leads above its
/// host is on none: "s3://a/../b" is "s3://../b".
std::string PathAsRead(const std::string& path);

/// The same of a program on the nodes. Only a name without a slash is looked for in PATH; what else is not
/// absolute goes from the folder that it runs in, and begins with "./" ("bin/x" is "./bin/x") or "../".
std::string ProgramAsRead(const std::string& program);

/// Of a path in which wildcards (glob(7)) and trainers' braces count, the first part between slashes that may
/// lead to other folders than PathAsRead() tells: one that may become "..", a ".." (the part before it may
/// become nothing), or braces that go on behind the slash. Nothing where there is none.
std::optional<std::string_view> PartThatLeadsElsewhere(std::string_view path);

}  // namespace imgd
