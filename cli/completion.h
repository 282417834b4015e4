#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/grammar.h"

namespace imgd::cli {

/// What the word that is being typed can become.
struct Completion {
  struct Candidate {
    std::string word;
    std::string help;  ///< its first line; may be empty
  };
  std::vector<Candidate> candidates;
  bool files = false;  ///< names of files too, which the shell knows better
};

/// `words`: those after the program's name up to the one that is being typed, which may be empty. Pure.
/// Bash cuts words at '=' and hands it over as one of its own; zsh and fish don't. Both are understood.
Completion Complete(const Grammar& program, const std::vector<std::string>& words);

/// The words for a shell's script: a line for each candidate, with a tab before its help; and the line
/// ":files".
std::string CompletionText(const Completion& completion);

/// The script by which bash, zsh or fish asks `imgcli complete` for words; nothing for another name.
std::optional<std::string_view> CompletionScript(std::string_view shell);

}  // namespace imgd::cli
