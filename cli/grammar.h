#pragma once

#include <string>
#include <vector>

namespace imgd::cli {

/// A command as it can be written: what command_line.cc knows of it, for what completes words and writes
/// manuals.
struct Grammar {
  struct Option {
    std::vector<std::string> names;  ///< with their dashes: "-o", "--output"; an argument's has none: "JOB"
    std::string help;
    std::string value_name;          ///< "FILE"; empty for an argument, and where there is no name
    std::vector<std::string> words;  ///< the values that are known beforehand
    bool takes_value = false;
  };
  std::string name;
  std::string help;
  std::vector<Option> options;
  std::vector<Option> arguments;  ///< in their order
  std::vector<Grammar> commands;
};

}  // namespace imgd::cli
