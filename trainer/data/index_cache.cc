#include "trainer/data/index_cache.h"

#include <charconv>
#include <nlohmann/json.hpp>

#include "common/files.h"
#include "common/json.h"
#include "common/sha256.h"
#include "trainer/data/crc32c.h"

namespace imgd::data {
namespace {

/// First line of a kept index: the checksum of the rest, which is a line of JSON and the index.
constexpr std::string_view kKeptMagic = "imgd-kept-index-2 ";
constexpr size_t kMostIndexBytes = size_t{2} << 30;

std::string HeadOf(const Source& shard, const ShardIndex& index) {
  const ScanNotes& notes = index.notes;
  nlohmann::ordered_json head = {{"name", shard.name()},   {"version", shard.version()},
                                 {"unread", notes.unread}, {"first_unread", notes.first_unread},
                                 {"hidden", notes.hidden}, {"has_end", notes.has_end}};
  head["classes"] = nlohmann::ordered_json::array();
  for (const auto& [label, name] : index.class_names) head["classes"].push_back({label, name});
  for (const auto& [label, words] : index.class_words) head["words"].push_back({label, words});
  return head.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

bool TakeTexts(const nlohmann::json& list, std::map<int32_t, std::string>& texts) {
  if (!list.is_array()) return false;
  for (const auto& one : list) {
    const auto label = one.is_array() && one.size() == 2 ? WholeNumber<int32_t>(one[0]) : std::nullopt;
    if (!label || !one[1].is_string()) return false;
    texts[*label] = one[1].get<std::string>();
  }
  return true;
}

bool TakeNotes(const nlohmann::json& head, ScanNotes& notes) {
  const auto at = [&](const char* key) { return head.value(key, nlohmann::json()); };
  const auto unread = WholeNumber<uint64_t>(at("unread"));
  const auto hidden = WholeNumber<uint64_t>(at("hidden"));
  if (!unread || !hidden || !at("first_unread").is_string() || !at("has_end").is_boolean()) return false;
  notes = {*unread, at("first_unread").get<std::string>(), *hidden, at("has_end").get<bool>()};
  return true;
}

bool TakeClasses(const nlohmann::json& head, ShardIndex& index) {
  if (!head.is_object() || !head.contains("classes")) return false;
  return TakeNotes(head, index.notes) && TakeTexts(head["classes"], index.class_names) &&
         (!head.contains("words") || TakeTexts(head["words"], index.class_words));
}

}  // namespace

std::string IndexCache::PathOf(const Source& shard) const {
  const std::string what = fmt::format("{}\n{}\n{}", shard.name(), shard.size(), shard.version());
  return fmt::format("{}/{}.idx", folder_, Sha256Of(what).substr(0, 40));
}

std::optional<ShardIndex> IndexCache::Find(const Source& shard) const {
  if (folder_.empty() || shard.version().empty()) return std::nullopt;
  const auto bytes = ReadFile(PathOf(shard), kMostIndexBytes);
  if (!bytes || !bytes->starts_with(kKeptMagic)) return std::nullopt;
  const size_t line = bytes->find('\n');
  const size_t head_end = line == std::string::npos ? line : bytes->find('\n', line + 1);
  if (head_end == std::string::npos) return std::nullopt;
  const std::string_view rest = std::string_view(*bytes).substr(line + 1);
  if (bytes->substr(kKeptMagic.size(), line - kKeptMagic.size()) !=
      fmt::format("{:08x}", Crc32c(AsBytes(rest))))
    return std::nullopt;
  auto index = DecodeShardIndex(bytes->substr(head_end + 1), "kept index");
  if (!index || index->shard_bytes != shard.size()) return std::nullopt;
  const auto head = nlohmann::json::parse(bytes->substr(line + 1, head_end - line - 1), nullptr, false);
  if (!TakeClasses(head, *index)) return std::nullopt;
  return std::move(*index);
}

void IndexCache::Keep(const Source& shard, const ShardIndex& index) const {
  if (folder_.empty() || shard.version().empty() || !MakeFolders(folder_)) return;
  const std::string rest = HeadOf(shard, index) + "\n" + EncodeShardIndex(index);
  static_cast<void>(WriteFileAtomically(
      PathOf(shard), fmt::format("{}{:08x}\n{}", kKeptMagic, Crc32c(AsBytes(rest)), rest)));
}

}  // namespace imgd::data
