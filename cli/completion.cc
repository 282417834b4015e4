#include "cli/completion.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

namespace imgd::cli {
namespace {

constexpr std::string_view kBash = R"sh(# bash completion for imgcli
_imgcli() {
  local line cur=${COMP_WORDS[COMP_CWORD]}
  COMPREPLY=()
  while IFS= read -r line; do
    if [[ $line == :files ]]; then
      compopt -o filenames 2>/dev/null
      while IFS= read -r line; do COMPREPLY+=("$line"); done < <(compgen -f -- "${cur#=}")
    else
      COMPREPLY+=("${line%%$'\t'*}")
    fi
  done < <("${COMP_WORDS[0]}" complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -F _imgcli imgcli
)sh";

constexpr std::string_view kZsh = R"sh(#compdef imgcli
# zsh completion for imgcli
_imgcli() {
  local line files=
  local -a found
  while IFS= read -r line; do
    if [[ $line == :files ]]; then
      files=1
    else
      line=${line//:/\\:}
      found+=("${line/$'\t'/:}")
    fi
  done < <("${words[1]}" complete "${(@)words[2,CURRENT]}" 2>/dev/null)
  (( ${#found} )) && _describe imgcli found
  [[ -n $files ]] && _files
  return 0
}
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
  _imgcli "$@"
else
  compdef _imgcli imgcli
fi
)sh";

constexpr std::string_view kFish = R"sh(# fish completion for imgcli
function __imgcli_words
    set -l tokens (commandline -opc) (commandline -ct)
    for line in ($tokens[1] complete $tokens[2..-1] 2>/dev/null)
        if test "$line" = :files
            __fish_complete_path (commandline -ct)
        else
            echo $line
        end
    end
end
complete -c imgcli -f -a '(__imgcli_words)'
)sh";

/// The command that the line has come to, with those that it belongs to: their options hold for it too.
using CommandPath = std::vector<const Grammar*>;

const Grammar::Option* FindOption(const CommandPath& path, std::string_view name) {
  for (const auto* command : path) {
    for (const auto& option : command->options) {
      if (std::find(option.names.begin(), option.names.end(), name) != option.names.end()) return &option;
    }
  }
  return nullptr;
}

/// What is known of a line before the word that is being typed.
struct LineState {
  CommandPath path;
  const Grammar::Option* pending = nullptr;  ///< an option whose value comes next
  bool only_arguments = false;               ///< after "--"
};

void TakeWord(const std::string& word, LineState& line) {
  if (line.pending != nullptr) {
    if (word != "=") line.pending = nullptr;
    return;
  }
  if (line.only_arguments || word.empty()) return;
  if (word == "--") {
    line.only_arguments = true;
    return;
  }
  if (word.front() == '-') {
    const auto* option = FindOption(line.path, word);
    if (option != nullptr && option->takes_value) line.pending = option;
    return;
  }
  for (const auto& command : line.path.back()->commands) {
    if (command.name != word) continue;
    line.path.push_back(&command);
    return;
  }
}

bool NamesFiles(const std::string& name) {
  static constexpr std::string_view kFileWords[] = {"FILE", "DIR", "FOLDER", "SRC", "OUT", "SET"};
  std::string word;
  for (const char c : name + " ") {
    if (std::isalpha(static_cast<unsigned char>(c)) != 0) {
      word += c;
      continue;
    }
    if (std::find(std::begin(kFileWords), std::end(kFileWords), word) != std::end(kFileWords)) return true;
    word.clear();
  }
  return false;
}

std::string FirstLineOf(const std::string& help) { return help.substr(0, help.find('\n')); }

void Offer(const std::string& word, const std::string& help, std::string_view typed, Completion& completion) {
  if (word.starts_with(typed)) completion.candidates.push_back({word, FirstLineOf(help)});
}

/// `before`: what stands before the value in the same word: "--output=".
Completion CompleteValue(const Grammar::Option& option, std::string_view typed, const std::string& before) {
  Completion completion;
  for (const auto& word : option.words) {
    if (word.starts_with(typed)) completion.candidates.push_back({before + word, ""});
  }
  completion.files = NamesFiles(option.value_name);
  return completion;
}

Completion CompleteOptionName(const CommandPath& path, const std::string& typed) {
  Completion completion;
  for (auto command = path.rbegin(); command != path.rend(); ++command) {
    for (const auto& option : (*command)->options) {
      for (const auto& name : option.names) {
        // Help is each command's own: once is enough.
        const bool again = name == "--help" && command != path.rbegin();
        if (name.starts_with("--") && !again) Offer(name, option.help, typed, completion);
      }
    }
  }
  return completion;
}

Completion CompleteArgument(const LineState& line, const std::string& typed) {
  Completion completion;
  const Grammar& command = *line.path.back();
  if (!line.only_arguments) {
    for (const auto& sub : command.commands) Offer(sub.name, sub.help, typed, completion);
  }
  for (const auto& argument : command.arguments) {
    for (const auto& word : argument.words) Offer(word, "", typed, completion);
    completion.files = completion.files || NamesFiles(argument.names.front());
  }
  return completion;
}

}  // namespace

Completion Complete(const Grammar& program, const std::vector<std::string>& words) {
  LineState line{.path = {&program}};
  const std::string last = words.empty() ? "" : words.back();
  for (size_t i = 0; i + 1 < words.size(); ++i) TakeWord(words[i], line);
  if (line.pending != nullptr) return CompleteValue(*line.pending, last == "=" ? "" : last, "");
  if (line.only_arguments || !last.starts_with('-')) return CompleteArgument(line, last);
  const auto equals = last.find('=');
  if (equals == std::string::npos) return CompleteOptionName(line.path, last);
  const auto* option = FindOption(line.path, last.substr(0, equals));
  if (option == nullptr || !option->takes_value) return {};
  return CompleteValue(*option, std::string_view(last).substr(equals + 1), last.substr(0, equals + 1));
}

std::string CompletionText(const Completion& completion) {
  std::string text;
  for (const auto& [word, help] : completion.candidates) {
    text += help.empty() ? word + "\n" : fmt::format("{}\t{}\n", word, help);
  }
  return completion.files ? text + ":files\n" : text;
}

std::optional<std::string_view> CompletionScript(std::string_view shell) {
  if (shell == "bash") return kBash;
  if (shell == "zsh") return kZsh;
  if (shell == "fish") return kFish;
  return std::nullopt;
}

}  // namespace imgd::cli
