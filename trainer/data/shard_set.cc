#include "trainer/data/shard_set.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>
#include <utility>

#include "common/files.h"
#include "common/json.h"
#include "trainer/data/recordio.h"
#include "trainer/data/shard_list.h"

namespace imgd::data {
namespace {

constexpr size_t kOpenedAtOnce = 64;
constexpr size_t kMaxRestartBytes = size_t{64} << 20;  // in memory, of a set
constexpr const char* kDescriptionFormat = "imgd-shards-1";
constexpr size_t kOtherFiles = 512;  ///< that the process may have open beside the shards

/// Of this process.
size_t OpenFiles() {
  std::error_code error;
  std::filesystem::directory_iterator it("/proc/self/fd", error);
  return error ? 0 : static_cast<size_t>(std::distance(it, std::filesystem::directory_iterator()));
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
    if (const auto words = json.find("words"); words != json.end()) {
      set.words = words->get<std::vector<std::string>>();
      if (set.words.size() != set.classes.size()) return bad("\"words\" has not one text for each class");
    }
    if (const auto first = json.find("first_label"); first != json.end()) {
      set.first_label = WholeNumber<int32_t>(*first);
      if (set.first_label != 0 && set.first_label != 1) return bad("\"first_label\" is 0 or 1");
    }
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
  if (!words.empty()) json["words"] = words;
  if (first_label) json["first_label"] = *first_label;
  json["shards"] = nlohmann::ordered_json::array();
  for (const auto& shard : shards) {
    json["shards"].push_back(
        {{"name", shard.name}, {"bytes", shard.bytes}, {"images", shard.images}, {"crc32c", shard.crc32c}});
  }
  // Names of folders need not be UTF-8.
  return json.dump(1, ' ', /*ensure_ascii=*/false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

Status ShardSet::Add(std::shared_ptr<Source> shard, const ShardIndex& index) {
  if (labels_.size() + index.images.size() > std::numeric_limits<uint32_t>::max()) {
    return Fail(ErrorCode::kInvalidArgument, "more than {} images", std::numeric_limits<uint32_t>::max());
  }
  const bool by_name = index.labels_by_name;
  std::map<int32_t, int32_t> numbers;  // of the shard's labels, among all classes that have names
  for (const auto& [label, name] : index.class_names) {
    if (by_name)
      numbers[label] =
          named_classes_.try_emplace(name, static_cast<int32_t>(named_classes_.size())).first->second;
  }
  has_numbered_ = has_numbered_ || (!by_name && !index.images.empty());
  for (const auto& image : index.images) {
    // What no JPEG can have is what nobody has looked at.
    const bool known = std::max(image.width, image.height) <= std::numeric_limits<uint16_t>::max();
    places_.push_back(
        {static_cast<uint32_t>(shards_.size()), image.size, image.skip,
         static_cast<uint32_t>(restarts_.size()), static_cast<uint16_t>(known ? image.width : 0),
         static_cast<uint16_t>(known ? image.height : 0), image.offset, uint64_t{keys_.size()}});
    // Of many images the decoder looks for the markers, rather than that all ranks keep where they are.
    if (restarts_.size() + image.restarts.size() <= kMaxRestartBytes) {
      restarts_ += image.restarts;
    } else if (!image.restarts.empty()) {
      restarts_.push_back(static_cast<char>(kFindRestarts.front()));
    }
    keys_ += image.key;
    keys_ += '\0';
    labels_.push_back(by_name ? numbers[image.label] : image.label);
  }
  scanned_.Add(shard->name(), index.notes);
  if (!by_name) class_names_.insert(index.class_names.begin(), index.class_names.end());
  words_.insert(index.class_words.begin(), index.class_words.end());
  shard_sizes_.push_back(static_cast<uint32_t>(index.images.size()));
  shards_.push_back(std::move(shard));
  return {};
}

/// Where the shards name classes: the label is the class's place among `classes`, or where there are none its
/// rank among all names.
Status ShardSet::RankNamedClasses(const std::vector<std::string>& classes) {
  if (named_classes_.empty()) return {};
  if (has_numbered_)
    return Fail(ErrorCode::kDataLoss,
                "some of the shards number the classes of their images, others name them");
  std::vector<int32_t> labels(named_classes_.size());
  int32_t rank = 0;
  for (const auto& [name, number] : named_classes_) {
    const auto place = std::ranges::find(classes, name);
    if (!classes.empty() && place == classes.end())
      return Fail(ErrorCode::kDataLoss, "the shards have the class {}, but {} does not", name,
                  kDescriptionName);
    const auto label = classes.empty() ? rank++ : static_cast<int32_t>(place - classes.begin());
    labels[static_cast<size_t>(number)] = label;
    class_names_[label] = name;
  }
  for (auto& label : labels_) label = labels[static_cast<size_t>(label)];
  return {};
}

/// ImageNet's TFRecords count from 1, since 0 was meant for "background"; where shards.json doesn't say, a
/// set without a label 0 is taken for one.
Status ShardSet::CountLabelsFromZero(std::optional<int32_t> first_label) {
  const auto is_tf_record = [](const auto& shard) { return FormOf(shard->name()) == ShardForm::kTfRecord; };
  if (!std::ranges::all_of(shards_, is_tf_record)) return {};
  const int32_t least = *std::ranges::min_element(labels_);
  first_label_ = first_label.value_or(least == 0 ? 0 : 1);
  if (least < first_label_) {
    return Fail(ErrorCode::kDataLoss, "an image has the label {}, but {} says that labels begin at {}", least,
                kDescriptionName, first_label_);
  }
  for (auto& label : labels_) label -= first_label_;
  return {};
}

Status ShardSet::NameClasses(std::vector<std::string> names, const std::string& where) {
  classes_ = std::move(names);
  const int32_t last = *std::ranges::max_element(labels_);
  if (classes_.empty()) {
    if (last >= kMaxClasses) {  // one name each would take all memory
      return Fail(ErrorCode::kDataLoss, "{} has an image of label {}; labels go to {} at most", where, last,
                  kMaxClasses - 1);
    }
    for (int32_t label = 0; label <= last; ++label) {
      const auto named = class_names_.find(label + first_label_);
      classes_.push_back(named != class_names_.end() ? named->second : std::to_string(label));
    }
  }
  if (static_cast<size_t>(last) < classes_.size()) return {};
  return Fail(ErrorCode::kDataLoss, "{} has images of label {}, but only {} classes", where, last,
              classes_.size());
}

/// Those that shards.json has, or TFRecords have; a class that is called by its name has none.
void ShardSet::TakeWords(std::vector<std::string> described) {
  class_words_ = std::move(described);
  if (!class_words_.empty()) return;
  for (const auto& [label, words] : words_) {
    const auto c = static_cast<size_t>(label - first_label_);
    if (c >= classes_.size() || words.empty() || words == classes_[c]) continue;
    class_words_.resize(classes_.size());
    class_words_[c] = words;
  }
}

Result<std::unique_ptr<ShardSet>> ShardSet::Open(const std::string& where) {
  IMGD_ASSIGN(SourceSettings settings, SourceSettings::FromEnvironment());
  return Open(where, SourceOpener(std::move(settings)));
}

Result<std::unique_ptr<ShardSet>> ShardSet::Open(const std::string& where, const SourceOpener& opener) {
  IMGD_ASSIGN(ShardList list, ListShards(where, opener));
  return Open(where, std::move(list), opener);
}

Result<std::unique_ptr<ShardSet>> ShardSet::Open(const std::string& where, ShardList list,
                                                 const SourceOpener& opener) {
  if (list.shards.empty())
    return Fail(ErrorCode::kInvalidArgument, "{} has no shard (.tar, .rec, .tfrecord, train-00000-of-01024)",
                where);
  // A descriptor stays open for each shard, and a thousand is what a process may usually have. Where the hard
  // limit is lower, opening says which shard was too many.
  AllowOpenFiles(OpenFiles() + list.shards.size() + kOtherFiles);
  auto set = std::unique_ptr<ShardSet>(new ShardSet());
  for (size_t first = 0; first < list.shards.size(); first += kOpenedAtOnce) {
    IMGD_ASSIGN(auto shards, OpenShards(list, first, kOpenedAtOnce, opener));
    for (auto& shard : shards) IMGD_TRY(set->Add(std::move(shard.source), shard.index));
  }
  if (list.description) {
    for (const auto& shard : list.description->shards) set->checksums_.push_back(shard.crc32c);
  }
  if (set->size() == 0) {
    return Fail(ErrorCode::kInvalidArgument, "no image in the {} shards of {}", list.shards.size(), where);
  }
  IMGD_TRY(set->RankNamedClasses(list.description ? list.description->classes : std::vector<std::string>()));
  IMGD_TRY(set->CountLabelsFromZero(list.description ? list.description->first_label : std::nullopt));
  IMGD_TRY(set->NameClasses(
      list.description ? std::move(list.description->classes) : std::vector<std::string>(), where));
  set->notes_ = set->scanned_.Lines();
  set->TakeWords(list.description ? std::move(list.description->words) : std::vector<std::string>());
  return set;
}

std::string ShardSet::name(size_t i) const { return keys_.c_str() + places_[i].key; }

std::string ShardSet::place(size_t i) const {
  const Place& place = places_[i];
  return fmt::format("{} at byte {} of {}", name(i), place.offset, shards_[place.shard]->name());
}

RestartIndex ShardSet::restarts(size_t i) const {
  const size_t end = i + 1 < places_.size() ? places_[i + 1].restarts : restarts_.size();
  return AsBytes(std::string_view(restarts_).substr(places_[i].restarts, end - places_[i].restarts));
}

Status ShardSet::Read(size_t i, FileBuffer& out) const {
  const Place& place = places_[i];
  if (place.bytes > kMaxFileBytes) {
    return Fail(ErrorCode::kDataLoss, "the file has {} MiB; at most {} MiB are allowed", place.bytes >> 20,
                kMaxFileBytes >> 20);
  }
  const Source& shard = *shards_[place.shard];
  if (place.skip == 0) return shard.ReadUntil(place.offset, out.Take(place.bytes), out.stop);
  IMGD_ASSIGN(const auto record,
              ReadRecord(Stoppable(shard, out.stop), place.offset, uint64_t{place.skip} + place.bytes));
  if (record.size() != uint64_t{place.skip} + place.bytes) {
    return Fail(ErrorCode::kDataLoss, "the record has {} bytes, not {}", record.size(),
                place.skip + place.bytes);
  }
  std::copy(record.begin() + place.skip, record.end(), out.Take(place.bytes).begin());
  return {};
}

void ShardSet::WillRead(std::span<const uint32_t> samples) const {
  // By shard, in the order in which the shards are needed.
  std::map<uint32_t, size_t> numbers;
  std::vector<std::pair<uint32_t, std::vector<ByteRange>>> wanted;
  for (const uint32_t sample : samples) {
    const Place& place = places_[sample];
    if (place.skip != 0 || place.bytes > kMaxFileBytes) continue;  // read in several steps, or not at all
    const auto [it, is_new] = numbers.try_emplace(place.shard, wanted.size());
    if (is_new) wanted.push_back({place.shard, {}});
    wanted[it->second].second.push_back({place.offset, place.bytes});
  }
  for (const auto& [shard, ranges] : wanted) shards_[shard]->WillRead(ranges);
}

}  // namespace imgd::data
