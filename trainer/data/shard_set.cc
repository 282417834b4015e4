#include "trainer/data/shard_set.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "common/json.h"
#include "trainer/data/recordio.h"
#include "trainer/data/shard_list.h"

namespace imgd::data {
namespace {

constexpr size_t kOpenedAtOnce = 64;
constexpr const char* kDescriptionFormat = "imgd-shards-1";

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

Status ShardSet::Add(std::shared_ptr<Source> shard, const ShardIndex& index) {
  if (labels_.size() + index.images.size() > std::numeric_limits<uint32_t>::max()) {
    return Fail(ErrorCode::kInvalidArgument, "more than {} images", std::numeric_limits<uint32_t>::max());
  }
  for (const auto& image : index.images) {
    places_.push_back({static_cast<uint32_t>(shards_.size()), image.size, image.skip, image.offset,
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
  IMGD_ASSIGN(SourceSettings settings, SourceSettings::FromEnvironment());
  return Open(where, SourceOpener(std::move(settings)));
}

Result<std::unique_ptr<ShardSet>> ShardSet::Open(const std::string& where, const SourceOpener& opener) {
  IMGD_ASSIGN(ShardList list, ListShards(where, opener));
  if (list.shards.empty())
    return Fail(ErrorCode::kInvalidArgument, "{} has no shard (.tar, .rec, .tfrecord, train-00000-of-01024)",
                where);
  auto set = std::unique_ptr<ShardSet>(new ShardSet());
  for (size_t first = 0; first < list.shards.size(); first += kOpenedAtOnce) {
    IMGD_ASSIGN(auto shards, OpenShards(list, first, kOpenedAtOnce, opener));
    for (auto& shard : shards) IMGD_TRY(set->Add(std::move(shard.source), shard.index));
  }
  if (set->size() == 0) {
    return Fail(ErrorCode::kInvalidArgument, "no image in the {} shards of {}", list.shards.size(), where);
  }
  set->CountLabelsFromZero();
  IMGD_TRY(set->NameClasses(
      list.description ? std::move(list.description->classes) : std::vector<std::string>(), where));
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
