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

/// What a text may make of itself: all that reads it takes time and memory for each value, and aliases can
/// make a short one endless. No file of ours has nearly as much.
constexpr uint64_t kMostValues = 300'000;
constexpr uint64_t kMostBytes = 8 << 20;  ///< of scalars
constexpr uint64_t kMostDepth = 500;      ///< the parser takes no more without aliases
constexpr uint64_t kMostKeyBytes = 1024;  ///< the same, where no '?' is before the key
/// A text without aliases that is no longer than this has nothing of it.
constexpr size_t kHarmlessBytes = 64 << 10;

/// Counts with what aliases stand for, without building it.
class Sizes final : public YAML::EventHandler {
 public:
  explicit Sizes(const std::string& file) : file_(file) {}
  /// The first place where it is too much.
  std::optional<Error> error;

  void OnDocumentStart(const YAML::Mark&) override { open_ = {Open{}}; }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override { AddScalar(mark, "", anchor); }
  void OnScalar(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor,
                const std::string& value) override {
    AddScalar(mark, value, anchor);
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const auto is_it = [anchor](const Open& node) { return node.anchor == anchor; };
    if (std::any_of(open_.begin(), open_.end(), is_it))
      return Refuse(mark, "this alias stands for something that it is a part of itself");
    Add(known_[anchor], mark);
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    Begin(mark, {.anchor = anchor});
  }
  void OnSequenceEnd() override { Close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    Begin(mark, {.anchor = anchor, .is_map = true});
  }
  void OnMapEnd() override { Close(); }

 private:
  struct Size {
    uint64_t values = 0;
    uint64_t bytes = 0;
    uint64_t depth = 0;
  };
  struct Open {
    YAML::anchor_t anchor = YAML::NullAnchor;
    bool is_map = false;
    bool key_is_next = true;
    Size size = {};
  };

  void Refuse(const YAML::Mark& mark, const std::string& why) {
    if (!error) error = ErrorAt(mark, file_, why);
  }
  void AddScalar(const YAML::Mark& mark, const std::string& value, YAML::anchor_t anchor) {
    if (open_.back().is_map && open_.back().key_is_next && value.size() > kMostKeyBytes)
      Refuse(mark, fmt::format("this key has more than {} bytes", kMostKeyBytes));
    const Size one{.values = 1, .bytes = value.size()};
    if (anchor != YAML::NullAnchor) known_[anchor] = one;
    Add(one, mark);
  }
  void Begin(const YAML::Mark& mark, const Open& node) {
    open_.push_back(node);
    AddTo(all_, {.values = 1});
    Check(mark, 0);
  }
  void Add(const Size& size, const YAML::Mark& mark) {
    open_.back().key_is_next = !open_.back().key_is_next;
    AddTo(open_.back().size, size);
    AddTo(all_, size);
    Check(mark, size.depth);
  }
  void Check(const YAML::Mark& mark, uint64_t depth) {
    if (all_.values > kMostValues)
      Refuse(mark, fmt::format("the file has more than {} values until here", kMostValues));
    if (all_.bytes > kMostBytes)
      Refuse(mark, fmt::format("the file has more than {} MiB of text until here", kMostBytes >> 20));
    if (open_.size() + depth > kMostDepth)
      Refuse(mark, fmt::format("the file is nested more than {} deep here", kMostDepth));
  }
  /// Sums stop beyond what is allowed, so that none runs over.
  static void AddTo(Size& sum, const Size& size) {
    sum.values = std::min(sum.values + size.values, 2 * kMostValues);
    sum.bytes = std::min(sum.bytes + size.bytes, 2 * kMostBytes);
    sum.depth = std::max(sum.depth, size.depth);
  }
  void Close() {
    Open ended = open_.back();
    open_.pop_back();
    ++ended.size.values;
    ++ended.size.depth;
    if (ended.anchor != YAML::NullAnchor) known_[ended.anchor] = ended.size;
    AddTo(open_.back().size, ended.size);
    open_.back().key_is_next = !open_.back().key_is_next;
  }

  const std::string& file_;
  std::vector<Open> open_ = {Open{}};
  Size all_;
  std::map<YAML::anchor_t, Size> known_;  ///< of what has ended
};

std::optional<Error> CheckSize(std::string_view text, const std::string& file) {
  if (text.size() <= kHarmlessBytes && text.find('*') == std::string_view::npos) return std::nullopt;
  Sizes sizes(file);
  try {
    std::istringstream in{std::string(text)};
    YAML::Parser parser(in);
    while (!sizes.error && parser.HandleNextDocument(sizes)) {
    }
  } catch (const YAML::Exception&) {
    // Whoever builds it says what is wrong.
  }
  return std::move(sizes.error);
}

/// Where a value is, by the keys and lists around it.
struct Place {
  const Place* around = nullptr;
  std::string_view key = {};
  std::optional<size_t> item = {};  ///< of a list, in place of a key: its number

  std::string Path() const {
    const std::string before = around == nullptr ? "" : around->Path();
    if (item) return fmt::format("{}[{}]", before, *item);
    return before.empty() ? std::string(key) : fmt::format("{}.{}", before, key);
  }
};

void FindTwice(const YAML::Node& node, const Place* place, const std::string& file,
               std::vector<Error>& errors) {
  if (errors.size() > kMostErrors) return;
  if (node.IsSequence()) {
    size_t number = 0;
    for (const auto& item : node) {
      const Place own{.around = place, .item = number++};
      FindTwice(item, &own, file, errors);
    }
  }
  if (!node.IsMap()) return;
  std::set<std::string_view> seen;
  for (const auto& entry : node) {
    if (!entry.first.IsScalar()) continue;
    const Place own{.around = place, .key = entry.first.Scalar()};
    if (!seen.insert(own.key).second && errors.size() <= kMostErrors)
      errors.push_back(ErrorAt(entry.first.Mark(), file, fmt::format("'{}' is set twice", own.Path())));
    FindTwice(entry.second, &own, file, errors);
  }
}

}  // namespace

Result<YAML::Node> LoadYaml(std::string_view text, const std::string& file) {
  if (auto error = CheckUtf8(text, file)) return tl::unexpected(std::move(*error));
  if (auto error = CheckSize(text, file)) return tl::unexpected(std::move(*error));
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
  FindTwice(root, nullptr, file, errors);
  return errors;
}

}  // namespace imgd
