#include "common/yaml_text.h"

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <sstream>

#include "common/utf8.h"

namespace imgd {

Error ErrorAt(const YAML::Mark& mark, const std::string& file, std::string message) {
  Error error{.code = ErrorCode::kInvalidArgument, .message = std::move(message), .file = file};
  if (!mark.is_null()) {
    error.line = mark.line + 1;
    error.column = mark.column + 1;
  }
  return error;
}

namespace {

/// Bytes that are no UTF-8 would only be found out when the text is sent. Columns count characters.
std::optional<Error> CheckUtf8(std::string_view text, const std::string& file) {
  const auto bad = FindInvalidUtf8(text);
  if (!bad) return std::nullopt;
  const std::string_view before = text.substr(0, *bad);
  const auto line_start = before.rfind('\n') + 1;  // npos + 1 is 0
  const auto in_line = before.substr(line_start);
  Error error{.code = ErrorCode::kInvalidArgument,
              .message = fmt::format("found the byte 0x{:02X}, which is no UTF-8",
                                     static_cast<unsigned char>(text[*bad])),
              .file = file,
              .hint = "save the file as UTF-8"};
  error.line = static_cast<int>(std::count(before.begin(), before.end(), '\n')) + 1;
  error.column = static_cast<int>(std::count_if(in_line.begin(), in_line.end(),
                                                [](char c) { return (c & 0xC0) != 0x80; })) +
                 1;
  return error;
}

/// Remembers where each document of a text begins, and its last scalar.
class Places final : public YAML::EventHandler {
 public:
  std::vector<YAML::Mark> documents;
  YAML::Mark last_scalar = YAML::Mark::null_mark();

  void OnDocumentStart(const YAML::Mark& mark) override { documents.push_back(mark); }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark&, YAML::anchor_t) override {}
  void OnAlias(const YAML::Mark&, YAML::anchor_t) override {}
  void OnScalar(const YAML::Mark& mark, const std::string&, YAML::anchor_t, const std::string&) override {
    last_scalar = mark;
  }
  void OnSequenceStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {}
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark&, const std::string&, YAML::anchor_t, YAML::EmitterStyle::value) override {
  }
  void OnMapEnd() override {}
};

/// A second document would be left out without a word.
std::optional<Error> CheckOneDocument(std::string_view text, const std::string& file) {
  std::istringstream in{std::string(text)};
  YAML::Parser parser(in);
  Places starts;
  while (starts.documents.size() < 2 && parser.HandleNextDocument(starts)) {
  }
  if (starts.documents.size() < 2) return std::nullopt;
  Error error = ErrorAt(starts.documents[1], file, "a second document begins here; only one is expected");
  error.hint = "leave out the '---', or make two files";
  return error;
}

/// Where in `text` that is; nothing where it is in no line of it.
std::optional<size_t> OffsetOf(std::string_view text, const YAML::Mark& mark) {
  size_t line_start = 0;
  for (int line = 0; line < mark.line; ++line) {
    line_start = text.find('\n', line_start);
    if (line_start == std::string_view::npos) return std::nullopt;
    ++line_start;
  }
  // Columns count characters.
  size_t at = line_start;
  for (int column = 0; column < mark.column && at < text.size(); ++column) {
    do ++at;
    while (at < text.size() && (text[at] & 0xC0) == 0x80);
  }
  return at < text.size() ? std::optional(at) : std::nullopt;
}

/// Whether the scalar that begins with the quote at `start` ends within `text`.
bool IsClosed(std::string_view text, size_t start) {
  const char quote = text[start];
  for (size_t at = start + 1; at < text.size(); ++at) {
    if (quote == '"' && text[at] == '\\') {
      ++at;
    } else if (text[at] == quote) {
      // Two of them stand for one, between single quotes.
      if (quote == '"' || at + 1 == text.size() || text[at + 1] != quote) return true;
      ++at;
    }
  }
  return false;
}

/// The parser takes a quote that is never closed for one that is closed at the end: the last scalar then has
/// all that follows in it.
std::optional<Error> CheckQuotes(std::string_view text, const std::string& file) {
  if (text.find_first_of("\"'") == std::string_view::npos) return std::nullopt;
  std::istringstream in{std::string(text)};
  YAML::Parser parser(in);
  Places places;
  parser.HandleNextDocument(places);
  if (places.last_scalar.is_null()) return std::nullopt;
  const auto start = OffsetOf(text, places.last_scalar);
  if (!start || (text[*start] != '"' && text[*start] != '\'') || IsClosed(text, *start)) return std::nullopt;
  return ErrorAt(places.last_scalar, file,
                 fmt::format("not valid YAML: the quote {} that begins here is never closed", text[*start]));
}

/// The text's only document; nothing where there are others, or where it is malformed.
std::optional<YAML::Node> LoadOne(const std::string& text) {
  try {
    const auto documents = YAML::LoadAll(text);
    if (documents.size() == 1) return documents.front();
  } catch (const YAML::Exception&) {
  }
  return std::nullopt;
}

/// What the parser found, in words that say what to do.
Error WhyMalformed(std::string_view text, const std::string& file, const YAML::Exception& exception) {
  // A tab before the first word of a line is taken for anything but indentation, and what is said of it is
  // about that.
  YAML::Mark tab;
  for (size_t start = 0; start < text.size() && tab.line <= exception.mark.line; ++tab.line) {
    const auto blanks = text.substr(start, text.find_first_not_of(" \t", start) - start);
    if (const auto at = blanks.find('\t'); at != std::string_view::npos) {
      tab.column = static_cast<int>(at);
      return ErrorAt(tab, file, "not valid YAML: a tab indents this line; only spaces may");
    }
    const auto end = text.find('\n', start);
    start = end == std::string_view::npos ? text.size() : end + 1;
  }
  const bool deep =
      exception.msg == YAML::ErrorMsg::BAD_FILE;  // what the parser says where it gives up going deeper
  return ErrorAt(exception.mark, file,
                 fmt::format("not valid YAML: {}", deep ? "nested too deeply" : exception.msg));
}

/// Follows aliases without building what they stand for, which can be endless, or have no end of values.
class Aliases final : public YAML::EventHandler {
 public:
  explicit Aliases(const std::string& file) : file_(file) {}
  /// The first that makes too much of the text.
  std::optional<Error> error;

  void OnDocumentStart(const YAML::Mark&) override { open_ = {Open{}}; }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark&, YAML::anchor_t anchor) override { AddScalar(anchor); }
  void OnScalar(const YAML::Mark&, const std::string&, YAML::anchor_t anchor, const std::string&) override {
    AddScalar(anchor);
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const auto is_it = [anchor](const Open& node) { return node.anchor == anchor; };
    if (std::any_of(open_.begin(), open_.end(), is_it))
      return Refuse(mark, "this alias stands for something that it is a part of itself");
    Add(known_[anchor]);
    uint64_t values = 0;
    for (const Open& node : open_) values += node.size.values;
    if (values > kMostValues)
      Refuse(mark, fmt::format("with this alias the file has more than {} values", kMostValues));
    if (open_.size() + known_[anchor].depth > kMostDepth)
      Refuse(mark, fmt::format("with this alias the file is nested more than {} deep", kMostDepth));
  }
  void OnSequenceStart(const YAML::Mark&, const std::string&, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open_.push_back({.anchor = anchor});
  }
  void OnSequenceEnd() override { Close(); }
  void OnMapStart(const YAML::Mark&, const std::string&, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open_.push_back({.anchor = anchor});
  }
  void OnMapEnd() override { Close(); }

 private:
  static constexpr uint64_t kMostValues = 100'000;  ///< no file of ours has as many
  static constexpr uint64_t kMostDepth = 500;       ///< of a text without aliases the parser takes no more
  struct Size {
    uint64_t values = 0;  ///< no more than one beyond kMostValues
    uint64_t depth = 0;
  };
  struct Open {
    YAML::anchor_t anchor = YAML::NullAnchor;
    Size size = {};
  };

  void Refuse(const YAML::Mark& mark, const std::string& why) {
    if (!error) error = ErrorAt(mark, file_, why);
  }
  void AddScalar(YAML::anchor_t anchor) {
    const Size one{.values = 1};
    if (anchor != YAML::NullAnchor) known_[anchor] = one;
    Add(one);
  }
  void Add(const Size& size) {
    Size& sum = open_.back().size;
    sum.values = std::min(sum.values + size.values, kMostValues + 1);
    sum.depth = std::max(sum.depth, size.depth);
  }
  void Close() {
    Open ended = open_.back();
    open_.pop_back();
    ++ended.size.values;
    ++ended.size.depth;
    if (ended.anchor != YAML::NullAnchor) known_[ended.anchor] = ended.size;
    Add(ended.size);
  }

  const std::string& file_;
  std::vector<Open> open_ = {Open{}};
  std::map<YAML::anchor_t, Size> known_;  ///< of what has ended
};

std::optional<Error> CheckAliases(std::string_view text, const std::string& file) {
  if (text.find('*') == std::string_view::npos) return std::nullopt;
  Aliases aliases(file);
  try {
    std::istringstream in{std::string(text)};
    YAML::Parser parser(in);
    while (!aliases.error && parser.HandleNextDocument(aliases)) {
    }
  } catch (const YAML::Exception&) {
    // Whoever builds it says what is wrong.
  }
  return std::move(aliases.error);
}

void FindTwice(const YAML::Node& node, const std::string& path, const std::string& file,
               std::vector<Error>& errors) {
  if (node.IsSequence()) {
    size_t number = 0;
    const std::string list = path.ends_with('.') ? path.substr(0, path.size() - 1) : path;
    for (const auto& item : node) FindTwice(item, fmt::format("{}[{}].", list, number++), file, errors);
  }
  if (!node.IsMap()) return;
  std::set<std::string> seen;
  for (const auto& entry : node) {
    if (!entry.first.IsScalar()) continue;
    const std::string key = path + entry.first.Scalar();
    if (!seen.insert(key).second) {
      errors.push_back(ErrorAt(entry.first.Mark(), file, fmt::format("'{}' is set twice", key)));
    }
    FindTwice(entry.second, key + ".", file, errors);
  }
}

}  // namespace

Result<YAML::Node> LoadYaml(std::string_view text, const std::string& file) {
  if (auto error = CheckUtf8(text, file)) return tl::unexpected(std::move(*error));
  if (auto error = CheckAliases(text, file)) return tl::unexpected(std::move(*error));
  try {
    auto only = LoadOne(std::string(text));
    // A second pass, to find out what is wrong and where.
    if (!only) {
      if (auto error = CheckOneDocument(text, file)) return tl::unexpected(std::move(*error));
      only = YAML::Load(std::string(text));
    }
    if (auto error = CheckQuotes(text, file)) return tl::unexpected(std::move(*error));
    return *only;
  } catch (const YAML::Exception& exception) {
    return tl::unexpected(WhyMalformed(text, file, exception));
  }
}

std::vector<Error> FindKeysSetTwice(const YAML::Node& root, const std::string& file) {
  std::vector<Error> errors;
  FindTwice(root, "", file, errors);
  return errors;
}

}  // namespace imgd
