#include "trainer/data/shard_index.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "common/json.h"
#include "common/text.h"
#include "trainer/data/crc32c.h"
#include "trainer/data/image_name.h"
#include "trainer/data/recordio.h"
#include "trainer/data/tar.h"
#include "trainer/data/tfrecord.h"

namespace imgd::data {
namespace {

constexpr std::string_view kIndexMagic = "imgdidx2";
constexpr std::string_view kIndexMagicBefore = "imgdidx1";  // without width, height and restart intervals
constexpr uint64_t kMaxLabelBytes = 1 << 20;

template <typename T>
void Put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

/// Takes values off the front of bytes; `ok` turns false where they are too few.
struct Taker {
  std::string_view rest;
  bool ok = true;

  template <typename T>
  T Take() {
    T value{};
    const auto bytes = TakeBytes(sizeof value);
    if (ok) std::memcpy(&value, bytes.data(), sizeof value);
    return value;
  }
  std::string_view TakeBytes(size_t n) {
    ok = ok && n <= rest.size();
    if (!ok) return {};
    const auto bytes = rest.substr(0, n);
    rest.remove_prefix(n);
    return bytes;
  }
};

Result<std::string> ReadLabel(const Source& shard, const TarEntry& entry) {
  if (entry.size > kMaxLabelBytes) {
    return Fail(ErrorCode::kDataLoss, "{}: {} has {} bytes, which is no label", shard.name(), entry.name,
                entry.size);
  }
  return ReadText(shard, entry.offset, entry.size);
}

/// What a sample says of its class: its number, or its name.
struct Label {
  std::optional<int32_t> number;
  std::string wnid;
};

Label LabelFromText(std::string_view text) {
  while (!text.empty() && std::string_view(" \t\r\n").find(text.back()) != std::string_view::npos)
    text.remove_suffix(1);
  if (IsWnid(text)) return {.wnid = std::string(text)};
  int32_t label = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), label);
  if (text.empty() || result.ec != std::errc() || result.ptr != text.data() + text.size() || label < 0)
    return {};
  return {.number = label};
}

Label LabelFromJson(const std::string& text) {
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return {};
  Label label;
  for (const char* key : {"label", "cls", "class", "synset", "wnid"}) {
    const auto found = json.find(key);
    if (found == json.end()) continue;
    const auto number = WholeNumber<int32_t>(*found);
    if (number && *number >= 0 && !label.number) label.number = number;
    if (found->is_string() && label.wnid.empty() && IsWnid(found->get_ref<const std::string&>()))
      label.wnid = found->get<std::string>();
  }
  return label;
}

/// The parts of one sample, as they come.
struct Sample {
  std::string path;  ///< with folders, without endings: what its parts share
  std::optional<TarEntry> image;
  std::string unread;  ///< an image in a form that is not read
  Label label;
};

/// As ImageFolder and webdataset have it: what a Mac puts beside each file is none of the set.
bool IsHiddenFile(std::string_view name) { return name.substr(name.rfind('/') + 1).starts_with('.'); }

void NoteUnread(const std::string& name, ScanNotes& notes) {
  if (notes.unread++ == 0) notes.first_unread = name;
}

/// Numbers of the classes that samples name, as they come.
using NamedClasses = std::map<std::string, int32_t>;

Status Finish(const Source& shard, Sample& sample, ShardIndex& index, NamedClasses& named) {
  if (!sample.image) {
    if (!sample.unread.empty()) NoteUnread(sample.unread, index.notes);
    return {};
  }
  if (!sample.label.number && sample.label.wnid.empty()) {
    return Fail(ErrorCode::kDataLoss,
                "{}: '{}' has no label: there is neither '{}.cls' with a number or a WordNet id such as "
                "n01440764 nor '{}.json' with \"label\"",
                shard.name(), sample.image->name, sample.path, sample.path);
  }
  if (!index.images.empty() && sample.label.number.has_value() != named.empty()) {
    return Fail(ErrorCode::kDataLoss, "{}: '{}' has its class by {}, but the images before it by {}",
                shard.name(), sample.image->name, named.empty() ? "name" : "number",
                named.empty() ? "number" : "name");
  }
  if (sample.label.number && !sample.label.wnid.empty())
    index.class_names.try_emplace(*sample.label.number, sample.label.wnid);
  const auto number = [&] {
    return named.try_emplace(sample.label.wnid, static_cast<int32_t>(named.size())).first->second;
  };
  if (sample.image->size > UINT32_MAX) {
    return Fail(ErrorCode::kDataLoss, "{}: '{}' has {} bytes, which is no image", shard.name(),
                sample.image->name, sample.image->size);
  }
  const bool dotted = sample.path.starts_with("./");
  index.images.push_back({sample.path.substr(dotted ? 2 : 0), sample.image->offset,
                          static_cast<uint32_t>(sample.image->size),
                          sample.label.number ? *sample.label.number : number()});
  return {};
}

/// Labels that were numbered as they came become ranks.
void RankClasses(const NamedClasses& named, ShardIndex& index) {
  if (named.empty()) return;
  index.labels_by_name = true;
  std::vector<int32_t> ranks(named.size());
  for (const auto& [name, number] : named) {
    const auto rank = static_cast<int32_t>(index.class_names.size());
    ranks[static_cast<size_t>(number)] = rank;
    index.class_names[rank] = name;
  }
  for (auto& image : index.images) image.label = ranks[static_cast<size_t>(image.label)];
}

}  // namespace

bool IsWnid(std::string_view text) {
  return text.size() == 9 && text[0] == 'n' &&
         text.find_first_not_of("0123456789", 1) == std::string_view::npos;
}

void SetNotes::Add(const std::string& shard, const ScanNotes& notes) {
  if (total_.unread == 0 && notes.unread > 0) total_.first_unread = notes.first_unread + " in " + shard;
  total_.unread += notes.unread;
  total_.hidden += notes.hidden;
  if (!notes.has_end && without_end_++ == 0) first_without_end_ = shard;
}

std::vector<std::string> SetNotes::Lines() const {
  std::vector<std::string> lines;
  if (total_.unread > 0) lines.push_back(UnreadImagesNote(total_.unread, total_.first_unread));
  if (total_.hidden > 0) {
    lines.push_back(fmt::format(
        "passed over, since their names begin with a dot (as the ._* of macOS): {} files", total_.hidden));
  }
  if (without_end_ > 0) {
    lines.push_back(fmt::format(
        "{} of the tars end without the two blocks of zeros that a tar ends with, as {}: if that is "
        "where they were cut, images are missing",
        without_end_, first_without_end_));
  }
  return lines;
}

std::string UnreadImagesNote(uint64_t count, const std::string& first) {
  return fmt::format("left out, since only JPEG and PNG are read: {} {}, the first {}", count,
                     count == 1 ? "image" : "images", first);
}

std::string EncodeShardIndex(const ShardIndex& index) {
  std::string body;
  Put(body, index.shard_bytes);
  Put(body, static_cast<uint32_t>(index.images.size()));
  for (const auto& image : index.images) {
    Put(body, image.offset);
    Put(body, image.size);
    Put(body, image.label);
    Put(body, image.skip);
    Put(body, static_cast<uint16_t>(std::min<size_t>(image.key.size(), UINT16_MAX)));
    body.append(image.key, 0, UINT16_MAX);
    Put(body, image.width);
    Put(body, image.height);
    Put(body, static_cast<uint32_t>(image.restarts.size()));
    body += image.restarts;
  }
  std::string out(kIndexMagic);
  Put(out, Crc32c(AsBytes(body)));
  return out + body;
}

Result<ShardIndex> DecodeShardIndex(const std::string& bytes, const std::string& name) {
  const auto bad = [&](std::string_view what) {
    return Fail(ErrorCode::kDataLoss, "{} is no good shard index: {}", name, what);
  };
  const bool before = bytes.starts_with(kIndexMagicBefore);
  if (!before && !bytes.starts_with(kIndexMagic))
    return bad("it starts neither with 'imgdidx2' nor with 'imgdidx1'");
  Taker taker{std::string_view(bytes).substr(kIndexMagic.size())};
  const auto crc = taker.Take<uint32_t>();
  if (!taker.ok || crc != Crc32c(AsBytes(taker.rest))) return bad("its checksum is wrong");
  ShardIndex index;
  index.shard_bytes = taker.Take<uint64_t>();
  const auto count = taker.Take<uint32_t>();
  for (uint32_t i = 0; i < count && taker.ok; ++i) {
    IndexedImage image;
    image.offset = taker.Take<uint64_t>();
    image.size = taker.Take<uint32_t>();
    image.label = taker.Take<int32_t>();
    image.skip = taker.Take<uint32_t>();
    const auto key_size = taker.Take<uint16_t>();
    image.key = std::string(taker.TakeBytes(key_size));
    if (!before) {
      image.width = taker.Take<uint32_t>();
      image.height = taker.Take<uint32_t>();
      const auto restarts_size = taker.Take<uint32_t>();
      image.restarts = std::string(taker.TakeBytes(restarts_size));
    }
    if (image.label < 0 || image.offset > index.shard_bytes || image.size > index.shard_bytes - image.offset)
      return bad(fmt::format("image {} does not lie in the shard", i));
    if (!IsRestartIndex(AsBytes(image.restarts), image.size))
      return bad(fmt::format("the restart intervals of image {} do not lie in its file", i));
    index.images.push_back(std::move(image));
  }
  if (!taker.ok || !taker.rest.empty()) return bad("it is cut short or too long");
  return index;
}

ShardForm FormOf(std::string_view name) {
  if (name.ends_with(".tar")) return ShardForm::kTar;
  return name.ends_with(".rec") ? ShardForm::kRecordIo : ShardForm::kTfRecord;
}

Result<ShardIndex> ScanShard(const Source& shard) {
  switch (FormOf(shard.name())) {
    case ShardForm::kRecordIo:
      return ScanRecordIoShard(shard);
    case ShardForm::kTfRecord:
      return ScanTfRecordShard(shard);
    case ShardForm::kTar:
      break;
  }
  IMGD_ASSIGN(const bool of_tars, HoldsTars(shard));
  return of_tars ? ScanTarOfTars(shard) : ScanWebDatasetShard(shard);
}

Result<bool> HoldsTars(const Source& archive) {
  TarReader tar(archive);
  for (;;) {
    IMGD_ASSIGN(const auto entry, tar.Next());
    if (!entry) return false;
    if (!IsHiddenFile(entry->name)) return entry->name.ends_with(".tar");
  }
}

Result<ShardIndex> ScanTarOfTars(const Source& archive) {
  ShardIndex index{.shard_bytes = archive.size(), .labels_by_name = true};
  std::map<std::string, TarEntry> classes;  // sorted by name, as labels are
  TarReader outer(archive);
  for (;;) {
    IMGD_ASSIGN(auto entry, outer.Next());
    if (!entry) break;
    const std::string name = entry->name.substr(entry->name.rfind('/') + 1);
    if (IsHiddenFile(name)) {
      ++index.notes.hidden;
      continue;
    }
    if (!name.ends_with(".tar")) {
      return Fail(ErrorCode::kDataLoss, "{} holds tars of classes, but '{}' is none", archive.name(),
                  entry->name);
    }
    classes.insert_or_assign(name.substr(0, name.size() - 4), std::move(*entry));
  }
  index.notes.has_end = outer.has_end();
  for (const auto& [name, place] : classes) {
    const auto label = static_cast<int32_t>(index.class_names.size());
    index.class_names[label] = name;
    const Part inner(archive, fmt::format("{} in {}", place.name, archive.name()), place.offset, place.size);
    TarReader tar(inner);
    for (;;) {
      IMGD_ASSIGN(const auto entry, tar.Next());
      if (!entry) break;
      const std::string file = entry->name.substr(entry->name.rfind('/') + 1);
      if (IsHiddenFile(file)) {
        ++index.notes.hidden;
        continue;
      }
      if (IsUnreadImageEnding(file.substr(file.rfind('.') + 1))) NoteUnread(name + "/" + file, index.notes);
      if (!HasImageEnding(file) || entry->size > UINT32_MAX) continue;
      index.images.push_back({.key = name + "/" + file,
                              .offset = place.offset + entry->offset,
                              .size = static_cast<uint32_t>(entry->size),
                              .label = label});
    }
    index.notes.has_end = index.notes.has_end && tar.has_end();
  }
  return index;
}

Result<ShardIndex> ScanWebDatasetShard(const Source& shard) {
  ShardIndex index{.shard_bytes = shard.size()};
  TarReader tar(shard);
  NamedClasses named;
  Sample sample;
  for (;;) {
    IMGD_ASSIGN(const auto entry, tar.Next());
    if (!entry) break;
    if (IsHiddenFile(entry->name)) {
      ++index.notes.hidden;
      continue;
    }
    const size_t folder = entry->name.rfind('/') + 1;  // npos + 1 is 0
    const size_t dot = entry->name.find('.', folder);
    if (dot == std::string::npos) continue;
    std::string path = entry->name.substr(0, dot);
    if (path != sample.path) {
      IMGD_TRY(Finish(shard, sample, index, named));
      sample = Sample{.path = std::move(path)};
    }
    const std::string ending = Lower(entry->name.substr(dot + 1));
    if (IsImageEnding(ending)) {
      sample.image = *entry;
    } else if (IsUnreadImageEnding(ending)) {
      sample.unread = entry->name;
    } else if (ending == "cls" || ending == "json") {
      IMGD_ASSIGN(const std::string text, ReadLabel(shard, *entry));
      Label label = ending == "cls" ? LabelFromText(text) : LabelFromJson(text);
      if (label.number) sample.label.number = label.number;
      if (!label.wnid.empty()) sample.label.wnid = std::move(label.wnid);
    }
  }
  IMGD_TRY(Finish(shard, sample, index, named));
  RankClasses(named, index);
  index.notes.has_end = tar.has_end();
  return index;
}

}  // namespace imgd::data
