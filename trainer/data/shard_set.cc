#include "trainer/data/shard_set.h"

#include <glob.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>
#include <utility>

#include "common/files.h"
#include "common/json.h"
#include "trainer/data/recordio.h"

namespace imgd::data {
namespace {

namespace fs = std::filesystem;

constexpr const char* kDescriptionFormat = "imgd-shards-1";

/// What Open() was pointed at.
struct Listing {
  std::vector<std::string> shards;  ///< in order
  std::optional<SetDescription> description;
};

/// "{000..099}": a range of numbers, as many digits as the first; nothing if it is none.
Result<std::optional<std::vector<std::string>>> ExpandRange(const std::string& text) {
  const size_t dots = text.find("..");
  if (dots == std::string::npos) return std::optional<std::vector<std::string>>();
  const std::string first = text.substr(0, dots);
  const std::string last = text.substr(dots + 2);
  uint64_t from = 0;
  uint64_t to = 0;
  const auto parse = [](const std::string& digits, uint64_t& value) {
    const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    return result.ec == std::errc() && result.ptr == digits.data() + digits.size();
  };
  if (!parse(first, from) || !parse(last, to) || to < from) {
    return Fail(ErrorCode::kInvalidArgument,
                "'{{{}}}' is no range of numbers such as {{000000..000099}}, the least first", text);
  }
  if (to - from >= kMaxShards) {
    return Fail(ErrorCode::kInvalidArgument, "'{{{}}}' stands for more than {} shards", text, kMaxShards);
  }
  std::vector<std::string> words;
  for (uint64_t i = from; i <= to; ++i) words.push_back(fmt::format("{:0{}}", i, first.size()));
  return std::optional(std::move(words));
}

std::vector<std::string> SplitAtCommas(const std::string& text) {
  std::vector<std::string> words;
  size_t start = 0;
  for (size_t comma = text.find(','); comma != std::string::npos; comma = text.find(',', start)) {
    words.push_back(text.substr(start, comma - start));
    start = comma + 1;
  }
  words.push_back(text.substr(start));
  return words;
}

Result<std::vector<std::string>> Glob(const std::string& pattern) {
  glob_t found{};
  const int error = ::glob(pattern.c_str(), 0, nullptr, &found);
  std::vector<std::string> names(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  ::globfree(&found);
  if (error != 0 || names.empty()) return Fail(ErrorCode::kNotFound, "no file is named like {}", pattern);
  return names;
}

std::string Joined(const std::string& folder, const std::string& name) {
  return folder.ends_with('/') ? folder + name : folder + "/" + name;
}

/// "-00000-of-01024"
bool HasTfRecordNumber(std::string_view name) {
  const size_t of = name.rfind("-of-");
  if (of == std::string_view::npos) return false;
  const auto is_number = [](std::string_view text) {
    return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
  };
  const std::string_view before = name.substr(0, of);
  const size_t dash = before.rfind('-');
  return dash != std::string_view::npos && is_number(before.substr(dash + 1)) &&
         is_number(name.substr(of + 4));
}

/// "/data/train-" of "/data/train-00003-of-00008" and of "/data/train-000003.tar".
std::string SetNameOf(const std::string& path) {
  std::string_view name = path;
  if (HasTfRecordNumber(name)) {
    name = name.substr(0, name.rfind("-of-"));
  } else {
    name = name.substr(0, name.rfind('.'));
  }
  while (!name.empty() && name.back() >= '0' && name.back() <= '9') name.remove_suffix(1);
  return std::string(name);
}

/// The folder's shards.json; nothing where there is none.
Result<std::optional<SetDescription>> ReadDescription(const std::string& folder) {
  const std::string path = Joined(folder, kDescriptionName);
  std::error_code error;
  if (!fs::exists(path, error)) return std::optional<SetDescription>();
  IMGD_ASSIGN(const std::string json, ReadFile(path));
  IMGD_ASSIGN(auto description, SetDescription::Parse(json, path));
  return std::optional(std::move(description));
}

Result<Listing> ListFolder(const std::string& folder) {
  Listing listing;
  std::error_code error;
  IMGD_ASSIGN(listing.description, ReadDescription(folder));
  if (listing.description) {
    for (const auto& shard : listing.description->shards)
      listing.shards.push_back(Joined(folder, shard.name));
    return listing;
  }
  if (fs::exists(Joined(folder, kConversionPlanName), error)) {
    return Fail(ErrorCode::kInvalidArgument,
                "{} holds a part of a data set: a conversion into it was broken off; the same command goes "
                "on with it",
                folder);
  }
  fs::directory_iterator it(folder, error);
  for (; !error && it != fs::directory_iterator(); it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (IsShardName(name)) listing.shards.push_back(Joined(folder, name));
  }
  if (error) return FailErrno(error.value(), fmt::format("cannot list {}", folder));
  std::ranges::sort(listing.shards);
  for (const auto& shard : listing.shards) {
    const std::string& first = listing.shards.front();
    if (SetNameOf(shard) == SetNameOf(first)) continue;
    return Fail(ErrorCode::kInvalidArgument,
                "{} holds shards of several sets, as {} and {}; name those of one by a pattern such as {}*",
                folder, fs::path(first).filename().string(), fs::path(shard).filename().string(),
                SetNameOf(first));
  }
  return listing;
}

/// The description beside shards that were named one by one, for those of its shards.
Status DescribeSome(Listing& listing) {
  if (listing.shards.empty()) return {};
  const fs::path folder = fs::path(listing.shards.front()).parent_path();
  IMGD_ASSIGN(auto whole, ReadDescription(folder.empty() ? "." : folder.string()));
  if (!whole) return {};
  SetDescription some{.name = whole->name, .classes = std::move(whole->classes)};
  for (const auto& shard : listing.shards) {
    const auto described =
        std::ranges::find(whole->shards, fs::path(shard).filename().string(), &SetDescription::Shard::name);
    // Others lie among them: then the classes are not those of all.
    if (described == whole->shards.end() || fs::path(shard).parent_path() != folder) return {};
    some.shards.push_back(*described);
  }
  listing.description = std::move(some);
  return {};
}

Result<Listing> List(const std::string& where) {
  std::error_code error;
  if (fs::is_directory(where, error)) return ListFolder(where);
  Listing listing;
  IMGD_ASSIGN(const auto names, ExpandBraces(where));
  for (const auto& name : names) {
    if (name.find_first_of("*?[") == std::string::npos) {
      listing.shards.push_back(name);
      continue;
    }
    IMGD_ASSIGN(const auto found, Glob(name));
    listing.shards.insert(listing.shards.end(), found.begin(), found.end());
  }
  IMGD_TRY(DescribeSome(listing));
  return listing;
}

/// From the file beside the shard, if it is of this very shard; else from the shard's own headers.
Result<ShardIndex> IndexOf(const Source& shard) {
  const std::string path = shard.name() + ".idx";
  std::error_code error;
  if (fs::exists(path, error)) {
    IMGD_ASSIGN(const std::string bytes, ReadFile(path));
    IMGD_ASSIGN(auto index, DecodeShardIndex(bytes, path));
    if (index.shard_bytes == shard.size()) return index;
    return Fail(ErrorCode::kDataLoss, "{} is the index of a shard of {} bytes, but {} has {}", path,
                index.shard_bytes, shard.name(), shard.size());
  }
  return ScanShard(shard);
}

}  // namespace

Result<SetDescription> SetDescription::Parse(const std::string& text, const std::string& name) {
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  const auto bad = [&](std::string_view what) {
    return Fail(ErrorCode::kDataLoss, "{} does not describe a data set: {}", name, what);
  };
  if (!json.is_object() || json.value("format", nlohmann::json()) != kDescriptionFormat) {
    return bad(fmt::format("it is no JSON object with \"format\": \"{}\"", kDescriptionFormat));
  }
  try {
    SetDescription set;
    set.name = json.at("name").get<std::string>();
    set.classes = json.at("classes").get<std::vector<std::string>>();
    for (const auto& shard : json.at("shards")) {
      const auto bytes = WholeNumber<uint64_t>(shard.at("bytes"));
      const auto images = WholeNumber<uint32_t>(shard.at("images"));
      if (!bytes || !images)
        return bad("\"bytes\" and \"images\" of a shard are whole numbers, from 0 to 2^64-1 and 2^32-1");
      Shard one{shard.at("name").get<std::string>(), *bytes, *images, shard.at("crc32c").get<std::string>()};
      if (one.name.empty() || one.name.find('/') != std::string::npos)
        return bad(fmt::format("'{}' is no shard's name", one.name));
      set.shards.push_back(std::move(one));
    }
    return set;
  } catch (const nlohmann::json::exception& e) {
    return bad(e.what());
  }
}

std::string SetDescription::ToJson() const {
  nlohmann::ordered_json json = {{"format", kDescriptionFormat}, {"name", name}, {"classes", classes}};
  json["shards"] = nlohmann::ordered_json::array();
  for (const auto& shard : shards) {
    json["shards"].push_back(
        {{"name", shard.name}, {"bytes", shard.bytes}, {"images", shard.images}, {"crc32c", shard.crc32c}});
  }
  return json.dump(1) + "\n";
}

bool IsShardName(std::string_view name) {
  return name.ends_with(".tar") || name.ends_with(".rec") || name.ends_with(".tfrecord") ||
         name.ends_with(".tfrecords") || HasTfRecordNumber(name);
}

Result<std::vector<std::string>> ExpandBraces(const std::string& pattern) {
  const size_t open = pattern.find('{');
  if (open == std::string::npos) return std::vector<std::string>{pattern};
  const size_t close = pattern.find('}', open);
  if (close == std::string::npos) {
    return Fail(ErrorCode::kInvalidArgument, "{} has a {{ without a }}", pattern);
  }
  const std::string inside = pattern.substr(open + 1, close - open - 1);
  IMGD_ASSIGN(const auto range, ExpandRange(inside));
  IMGD_ASSIGN(const auto tails, ExpandBraces(pattern.substr(close + 1)));
  std::vector<std::string> names;
  for (const auto& word : range ? *range : SplitAtCommas(inside)) {
    for (const auto& tail : tails) {
      if (names.size() == kMaxShards)
        return Fail(ErrorCode::kInvalidArgument, "{} stands for more than {} shards", pattern, kMaxShards);
      names.push_back(pattern.substr(0, open) + word + tail);
    }
  }
  return names;
}

Status ShardSet::Add(std::shared_ptr<Source> shard, const ShardIndex& index) {
  if (labels_.size() + index.images.size() > std::numeric_limits<uint32_t>::max()) {
    return Fail(ErrorCode::kInvalidArgument, "more than {} images", std::numeric_limits<uint32_t>::max());
  }
  for (const auto& image : index.images) {
    // What no JPEG can have is what nobody has looked at.
    const bool known = std::max(image.width, image.height) <= std::numeric_limits<uint16_t>::max();
    places_.push_back({static_cast<uint32_t>(shards_.size()), image.size, image.skip,
                       static_cast<uint16_t>(known ? image.width : 0),
                       static_cast<uint16_t>(known ? image.height : 0), image.offset,
                       uint64_t{keys_.size()}});
    keys_ += image.key;
    keys_ += '\0';
    labels_.push_back(image.label);
  }
  class_names_.insert(index.class_names.begin(), index.class_names.end());
  shard_sizes_.push_back(static_cast<uint32_t>(index.images.size()));
  shards_.push_back(std::move(shard));
  return {};
}

/// ImageNet's TFRecords count from 1, since 0 was meant for "background"; a set without a label 0 is taken
/// for one.
void ShardSet::CountLabelsFromZero() {
  const auto is_tf_record = [](const auto& shard) { return FormOf(shard->name()) == ShardForm::kTfRecord; };
  if (!std::ranges::all_of(shards_, is_tf_record)) return;
  if (*std::ranges::min_element(labels_) == 0) return;
  first_label_ = 1;
  for (auto& label : labels_) --label;
}

Status ShardSet::NameClasses(std::vector<std::string> names, const std::string& where) {
  classes_ = std::move(names);
  const int32_t last = *std::ranges::max_element(labels_);
  if (classes_.empty()) {
    for (int32_t label = 0; label <= last; ++label) {
      const auto named = class_names_.find(label + first_label_);
      classes_.push_back(named != class_names_.end() ? named->second : std::to_string(label));
    }
  }
  if (static_cast<size_t>(last) < classes_.size()) return {};
  return Fail(ErrorCode::kDataLoss, "{} has images of label {}, but only {} classes", where, last,
              classes_.size());
}

Result<std::unique_ptr<ShardSet>> ShardSet::Open(const std::string& where) {
  IMGD_ASSIGN(Listing listing, List(where));
  if (listing.shards.empty())
    return Fail(ErrorCode::kInvalidArgument, "{} has no shard (.tar, .rec, .tfrecord, train-00000-of-01024)",
                where);
  auto set = std::unique_ptr<ShardSet>(new ShardSet());
  for (size_t i = 0; i < listing.shards.size(); ++i) {
    IMGD_ASSIGN(auto shard, OpenFileSource(listing.shards[i]));
    if (listing.description && listing.description->shards[i].bytes != shard->size()) {
      return Fail(ErrorCode::kDataLoss, "{} has {} bytes, but {} says {}", shard->name(), shard->size(),
                  kDescriptionName, listing.description->shards[i].bytes);
    }
    IMGD_ASSIGN(const auto index, IndexOf(*shard));
    IMGD_TRY(set->Add(std::move(shard), index));
  }
  if (set->size() == 0) {
    return Fail(ErrorCode::kInvalidArgument, "no image in the {} shards of {}", listing.shards.size(), where);
  }
  set->CountLabelsFromZero();
  IMGD_TRY(set->NameClasses(
      listing.description ? std::move(listing.description->classes) : std::vector<std::string>(), where));
  return set;
}

std::string ShardSet::name(size_t i) const { return keys_.c_str() + places_[i].key; }

std::string ShardSet::place(size_t i) const {
  const Place& place = places_[i];
  return fmt::format("{} at byte {} of {}", name(i), place.offset, shards_[place.shard]->name());
}

Status ShardSet::Read(size_t i, FileBuffer& out) const {
  const Place& place = places_[i];
  if (place.bytes > kMaxFileBytes) {
    return Fail(ErrorCode::kDataLoss, "the file has {} MiB; at most {} MiB are allowed", place.bytes >> 20,
                kMaxFileBytes >> 20);
  }
  const Source& shard = *shards_[place.shard];
  if (place.skip == 0) return shard.ReadAt(place.offset, out.Take(place.bytes));
  IMGD_ASSIGN(const auto record, ReadRecord(shard, place.offset, uint64_t{place.skip} + place.bytes));
  if (record.size() != uint64_t{place.skip} + place.bytes) {
    return Fail(ErrorCode::kDataLoss, "the record has {} bytes, not {}", record.size(),
                place.skip + place.bytes);
  }
  std::copy(record.begin() + place.skip, record.end(), out.Take(place.bytes).begin());
  return {};
}

}  // namespace imgd::data
