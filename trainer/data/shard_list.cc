#include "trainer/data/shard_list.h"

#include <fnmatch.h>
#include <glob.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <filesystem>
#include <system_error>
#include <thread>
#include <utility>

#include "common/url.h"
#include "trainer/data/image_name.h"
#include "trainer/data/index_cache.h"
#include "trainer/data/read_ahead.h"

namespace imgd::data {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMostDescriptionBytes = uint64_t{1} << 30;
constexpr uint64_t kMostShardIndexBytes = uint64_t{1} << 30;
/// Most indexes are far smaller; of larger ones one is read at a time.
constexpr uint64_t kMostIndexAtOnce = uint64_t{8} << 20;
/// An index is smaller than its shard, in which each image takes a header of its own, but for a shard of next
/// to nothing, or restart intervals that take more bytes than they need.
constexpr uint64_t kMostIndexBeyondShard = 1 << 20;
constexpr uint64_t kMostIndexOfShard = 2;
/// A local shard that is smaller is scanned faster than its index is found.
constexpr uint64_t kLeastKeptBytes = 64 << 20;
constexpr size_t kOpeners = 16;

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
Result<std::optional<SetDescription>> ReadDescription(const std::string& folder, const SourceOpener& opener) {
  const std::string path = Beside(folder, kDescriptionName);
  IMGD_ASSIGN(const auto json, opener.ReadSmall(path, kMostDescriptionBytes));
  if (!json) return std::optional<SetDescription>();
  IMGD_ASSIGN(auto description, SetDescription::Parse(*json, Shown(path)));
  return std::optional(std::move(description));
}

Result<std::vector<std::string>> NamesIn(const std::string& folder, const SourceOpener& opener) {
  std::vector<std::string> names;
  if (IsUrl(folder)) {
    IMGD_ASSIGN(const auto entries, opener.List(folder));
    for (const auto& entry : entries) names.push_back(entry.name);
    return names;
  }
  std::error_code error;
  fs::directory_iterator it(folder, error);
  for (; !error && it != fs::directory_iterator(); it.increment(error))
    names.push_back(it->path().filename().string());
  if (error) return FailErrno(error.value(), fmt::format("cannot list {}", folder));
  std::ranges::sort(names);
  return names;
}

/// A folder of classes into which a shard strayed, or the other way round: nobody knows which is meant.
Status CheckHoldsNoClasses(const std::string& folder, const std::string& shard) {
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    std::error_code ignored;
    const std::string name = it->path().filename().string();
    if (name.starts_with('.') || !it->is_directory(ignored)) continue;
    for (fs::directory_iterator file(it->path(), ignored), last; !ignored && file != last;
         file.increment(ignored)) {
      if (!HasImageEnding(file->path().filename().string())) continue;
      return Fail(
          ErrorCode::kInvalidArgument,
          "{} holds shards, as {}, and folders of images, as {}; move those elsewhere that are not of "
          "the set, or name the shards by a pattern such as {}*",
          folder, shard, name, Beside(folder, SetNameOf(shard)));
    }
  }
  return {};
}

Result<ShardList> ListFolder(const std::string& folder, const SourceOpener& opener) {
  ShardList list{.found = true};
  IMGD_ASSIGN(list.description, ReadDescription(folder, opener));
  if (list.description) {
    for (const auto& shard : list.description->shards) list.shards.push_back(Beside(folder, shard.name));
    return list;
  }
  std::error_code error;
  if (!IsUrl(folder) && fs::exists(fs::path(folder) / kConversionPlanName, error)) {
    return Fail(ErrorCode::kInvalidArgument,
                "{} holds a part of a data set: a conversion into it was broken off; the same command goes "
                "on with it",
                folder);
  }
  IMGD_ASSIGN(const auto names, NamesIn(folder, opener));
  std::string first;
  for (const auto& name : names) {
    if (!IsShardName(name)) continue;
    list.shards.push_back(Beside(folder, name));
    if (first.empty()) first = name;
    if (SetNameOf(name) == SetNameOf(first)) continue;
    return Fail(ErrorCode::kInvalidArgument,
                "{} holds shards of several sets, as {} and {}; name those of one by a pattern such as {}*",
                Shown(folder), first, name, Shown(Beside(folder, SetNameOf(first))));
  }
  if (!IsUrl(folder) && !first.empty()) IMGD_TRY(CheckHoldsNoClasses(folder, first));
  return list;
}

/// The description beside shards that were named one by one, for those of its shards.
Status DescribeSome(ShardList& list, const SourceOpener& opener) {
  if (list.shards.empty()) return {};
  const std::string folder = FolderOf(list.shards.front());
  // A query is of one file: it opens no other.
  if (IsUrl(folder) && list.shards.front().find('?') != std::string::npos) return {};
  IMGD_ASSIGN(auto whole, ReadDescription(folder, opener));
  if (!whole) return {};
  SetDescription some{
      .name = whole->name, .classes = std::move(whole->classes), .words = std::move(whole->words)};
  some.first_label = whole->first_label;
  for (const auto& shard : list.shards) {
    const auto described = std::ranges::find(whole->shards, NameOfFile(shard), &SetDescription::Shard::name);
    // Others lie among them: then the classes are not those of all.
    if (described == whole->shards.end() || FolderOf(shard) != folder) return {};
    some.shards.push_back(*described);
  }
  list.description = std::move(some);
  return {};
}

/// What patterns are looked for in: a host may be [::1].
std::string_view PathPart(const std::string& where) {
  const size_t path = IsUrl(where) ? where.find('/', where.find("://") + 3) : 0;
  return path == std::string::npos ? std::string_view() : std::string_view(where).substr(path);
}

Result<std::vector<std::string>> RemoteGlob(const std::string& pattern, const SourceOpener& opener) {
  const std::string folder = FolderOf(pattern);
  if (PathPart(folder).find_first_of("*[") != std::string::npos)
    return Fail(ErrorCode::kInvalidArgument,
                "{} has a * before the last '/'; it may be in the file's name only", Shown(pattern));
  IMGD_ASSIGN(const auto names, NamesIn(folder, opener));
  std::vector<std::string> found;
  for (const auto& name : names) {
    const bool matches = ::fnmatch(NameOfFile(pattern).c_str(), name.c_str(), FNM_PERIOD) == 0;
    if (matches && IsShardName(name)) found.push_back(Beside(folder, name));
  }
  if (found.empty()) return Fail(ErrorCode::kNotFound, "no shard is named like {}", Shown(pattern));
  return found;
}

std::optional<uint32_t> ParseCrc(const std::string& digits) {
  uint32_t crc = 0;
  const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), crc, 16);
  const bool good =
      digits.size() == 8 && parsed.ec == std::errc() && parsed.ptr == digits.data() + digits.size();
  return good ? std::optional(crc) : std::nullopt;
}

/// From the file beside the shard, if it is of this very shard; else from what was kept of an earlier scan,
/// or from the shard's own headers.
Result<ShardIndex> IndexOf(const Source& shard, const std::string& where, const SourceOpener& opener,
                           IndexReader& indexes) {
  const IndexCache kept(opener.settings().cache_folder.empty() ? ""
                                                               : opener.settings().cache_folder + "/indexes");
  const bool remote = IsUrl(where);
  if (remote) {
    if (auto index = kept.Find(shard)) return std::move(*index);
  }
  IMGD_ASSIGN(auto beside, indexes.Read(shard, where));
  if (beside) {
    if (remote) kept.Keep(shard, *beside);
    return std::move(*beside);
  }
  const bool keep = remote || shard.size() >= kLeastKeptBytes;
  if (keep && !remote) {
    if (auto index = kept.Find(shard)) return std::move(*index);
  }
  if (!remote) {
    IMGD_ASSIGN(auto index, ScanShard(shard));
    if (keep) kept.Keep(shard, index);
    return index;
  }
  IMGD_ASSIGN(auto index, ScanShard(WindowSource(shard)));
  kept.Keep(shard, index);
  return index;
}

Result<OpenedShard> OpenShard(const ShardList& list, size_t i, const SourceOpener& opener,
                              IndexReader& indexes) {
  const auto* described = list.description ? &list.description->shards[i] : nullptr;
  OpenedShard shard;
  IMGD_ASSIGN(shard.source,
              opener.Open(list.shards[i], described ? ParseCrc(described->crc32c) : std::nullopt));
  if (described && described->bytes != shard.source->size()) {
    return Fail(ErrorCode::kDataLoss, "{} has {} bytes, but {} says {}", shard.source->name(),
                shard.source->size(), kDescriptionName, described->bytes);
  }
  IMGD_ASSIGN(shard.index, IndexOf(*shard.source, list.shards[i], opener, indexes));
  return shard;
}

std::string_view NameOf(ShardForm form) {
  static constexpr std::array<std::string_view, 3> kNames = {"a tar", "RecordIO", "TFRecord"};
  return kNames[static_cast<size_t>(form)];
}

/// Labels of one form may count from 1, and those of another from 0.
Status CheckOneForm(const ShardList& list) {
  if (list.shards.empty()) return {};
  const std::string first = NameOfFile(list.shards.front());
  for (const auto& shard : list.shards) {
    const std::string name = NameOfFile(shard);
    if (FormOf(name) == FormOf(first)) continue;
    return Fail(ErrorCode::kInvalidArgument,
                "{} is {} and {} is {}: the shards of a set are of one form; name those of one by a pattern",
                Shown(list.shards.front()), NameOf(FormOf(first)), Shown(shard), NameOf(FormOf(name)));
  }
  return {};
}

Result<ShardList> ListNamed(const std::string& where, const SourceOpener& opener) {
  std::error_code error;
  const bool is_pattern =
      PathPart(where).find_first_of("*[{") != std::string::npos || IsShardName(NameOfFile(where));
  if (IsUrl(where) ? !is_pattern : fs::is_directory(where, error)) return ListFolder(where, opener);
  ShardList list;
  if (!IsUrl(where) && fs::is_regular_file(where, error)) {  // whatever is in its name
    list.shards = {where};
    IMGD_TRY(DescribeSome(list, opener));
    return list;
  }
  IMGD_ASSIGN(const auto names, ExpandBraces(where));
  for (const auto& name : names) {
    if (PathPart(name).find_first_of(IsUrl(name) ? "*[" : "*?[") == std::string::npos) {
      list.shards.push_back(name);
      continue;
    }
    IMGD_ASSIGN(const auto found, IsUrl(name) ? RemoteGlob(name, opener) : Glob(name));
    list.shards.insert(list.shards.end(), found.begin(), found.end());
    list.found = true;
  }
  IMGD_TRY(DescribeSome(list, opener));
  return list;
}

}  // namespace

std::string Shown(const std::string& where) {
  if (!IsUrl(where)) return where;
  const auto url = ParseUrl(where);
  return url ? url->ForPeople() : "the URL";
}

Result<ShardList> ListShards(const std::string& where, const SourceOpener& opener) {
  IMGD_ASSIGN(ShardList list, ListNamed(where, opener));
  IMGD_TRY(CheckOneForm(list));
  return list;
}

std::string IndexReader::PathOf(const std::string& where) {
  return IsUrl(where) ? Beside(FolderOf(where), NameOfFile(where) + ".idx") : where + ".idx";
}

Result<std::optional<ShardIndex>> IndexReader::Read(const Source& shard, const std::string& where) {
  if (IsUrl(where)) {
    const auto url = ParseUrl(where);
    if (url && !url->query.empty()) return std::optional<ShardIndex>();  // its signature fits no other file
  }
  const std::string path = PathOf(where);
  IMGD_ASSIGN(const auto bytes, ReadBytes(shard, path));
  if (!bytes) return std::optional<ShardIndex>();
  IMGD_ASSIGN(auto index, DecodeShardIndex(*bytes, Shown(path)));
  if (index.shard_bytes != shard.size()) {
    return Fail(ErrorCode::kDataLoss, "{} is the index of a shard of {} bytes, but {} has {}", Shown(path),
                index.shard_bytes, shard.name(), shard.size());
  }
  return std::optional(std::move(index));
}

/// What a server sends without end must not fill the memory, nor what sixteen of its shards have beside them.
Result<std::optional<std::string>> IndexReader::ReadBytes(const Source& shard, const std::string& path) {
  const uint64_t justified =
      std::min(shard.size(), kMostShardIndexBytes) * kMostIndexOfShard + kMostIndexBeyondShard;
  const uint64_t most = std::min(justified, kMostShardIndexBytes);
  if (!IsUrl(path)) return opener_.ReadSmall(path, most);
  auto bytes = opener_.ReadSmall(path, std::min(most, kMostIndexAtOnce));
  if (bytes || bytes.error().code != ErrorCode::kDataLoss || most <= kMostIndexAtOnce) return bytes;
  const std::scoped_lock lock(large_);
  return opener_.ReadSmall(path, most);
}

Result<std::vector<OpenedShard>> OpenShards(const ShardList& list, size_t first, size_t count,
                                            const SourceOpener& opener) {
  const size_t end = std::min(list.shards.size(), first + count);
  std::vector<Result<OpenedShard>> results(end - first);
  IndexReader indexes(opener);
  std::atomic<size_t> next = first;
  std::atomic<bool> failed = false;
  const auto work = [&] {
    for (size_t i = next++; i < end && !failed; i = next++) {
      results[i - first] = OpenShard(list, i, opener, indexes);
      if (!results[i - first]) failed = true;
    }
  };
  std::vector<std::thread> threads;
  const size_t wanted = IsUrl(list.shards[first]) ? std::min(kOpeners, end - first) : 1;
  for (size_t i = 1; i < wanted; ++i) threads.emplace_back(work);
  work();
  for (auto& thread : threads) thread.join();
  std::vector<OpenedShard> shards;
  for (auto& result : results) {
    if (!result) return tl::unexpected<Error>(std::move(result).error());
    if (result->source) shards.push_back(std::move(*result));  // none: not begun, since another failed
  }
  return shards;
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
    return Fail(ErrorCode::kInvalidArgument, "{} has a {{ without a }}", Shown(pattern));
  }
  const std::string inside = pattern.substr(open + 1, close - open - 1);
  IMGD_ASSIGN(const auto range, ExpandRange(inside));
  IMGD_ASSIGN(const auto tails, ExpandBraces(pattern.substr(close + 1)));
  std::vector<std::string> names;
  for (const auto& word : range ? *range : SplitAtCommas(inside)) {
    for (const auto& tail : tails) {
      if (names.size() == kMaxShards)
        return Fail(ErrorCode::kInvalidArgument, "{} stands for more than {} shards", Shown(pattern),
                    kMaxShards);
      names.push_back(pattern.substr(0, open) + word + tail);
    }
  }
  return names;
}

}  // namespace imgd::data
