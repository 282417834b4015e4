#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trainer/data/dataset.h"
#include "trainer/data/shard_index.h"
#include "trainer/data/source.h"

namespace imgd::data {

class SourceOpener;
struct ShardList;

constexpr uint64_t kMaxShards = 1'000'000;  ///< of one set
constexpr int32_t kMaxClasses = 1'000'000;  ///< of a set whose classes have no names
constexpr const char* kDescriptionName = "shards.json";
/// Lies where a conversion is under way, or was broken off.
constexpr const char* kConversionPlanName = ".convert.json";

/// What `shards.json` beside the shards says (docs/formats.md). Written last: a set without it is not
/// complete.
struct SetDescription {
  struct Shard {
    std::string name;  ///< of its file, in the same folder
    uint64_t bytes = 0;
    uint32_t images = 0;
    std::string crc32c;  ///< of the whole file, 8 hexadecimal digits
  };
  std::string name;
  std::vector<std::string> classes;    ///< in the order of their labels
  std::vector<Shard> shards;           ///< in the order of their images' numbers
  std::optional<int32_t> first_label;  ///< TFRecord: what the files' labels count from; else found by looking
  std::vector<std::string> words;      ///< what people call the classes, one for each; or none at all

  static Result<SetDescription> Parse(const std::string& json, const std::string& name);
  std::string ToJson() const;
};

/// A data set kept in shards. Images are numbered shard by shard, in each by offset.
class ShardSet final : public Dataset {
 public:
  /// `where`: a folder or URL (http, https, s3) with a shards.json; a folder with the shards of one set; or a
  /// pattern of shards as "train-{000000..000099}.tar" or "train-*.tar" (the latter of a URL where the server
  /// lists its files). Classes without names get their numbers for names. Errors: kNotFound; kInvalidArgument
  /// when there is no shard; kDataLoss for shards that can't be read, or that do not have the sizes that
  /// shards.json says.
  static Result<std::unique_ptr<ShardSet>> Open(const std::string& where);
  static Result<std::unique_ptr<ShardSet>> Open(const std::string& where, const SourceOpener& opener);
  /// The same for what ListShards() made of `where`.
  static Result<std::unique_ptr<ShardSet>> Open(const std::string& where, ShardList list,
                                                const SourceOpener& opener);

  std::string name(size_t i) const override;
  std::string place(size_t i) const override;
  const std::vector<uint32_t>& shard_sizes() const override { return shard_sizes_; }
  Result<uint64_t> FileBytes(size_t i) const override { return uint64_t{places_[i].bytes}; }
  Status Read(size_t i, FileBuffer& out) const override;
  void WillRead(std::span<const uint32_t> samples) const override;

  /// As Dataset::class_words(); as many as there are classes.
  void SetClassWords(std::vector<std::string> words) { class_words_ = std::move(words); }

  const std::vector<std::shared_ptr<Source>>& shards() const { return shards_; }
  /// CRC-32C of each shard by shards.json, as 8 hexadecimal digits; empty without one.
  const std::vector<std::string>& checksums() const { return checksums_; }
  RestartIndex restarts(size_t i) const override;
  std::pair<uint32_t, uint32_t> KnownSize(size_t i) const override {
    return {places_[i].width, places_[i].height};
  }

 private:
  struct Place {
    uint32_t shard;
    uint32_t bytes;
    uint32_t skip;      ///< IndexedImage::skip
    uint32_t restarts;  ///< where its own start in restarts_
    uint16_t width;     ///< pixels; 0: not known
    uint16_t height;
    uint64_t offset;
    uint64_t key;  ///< where it starts in keys_
  };
  Status Add(std::shared_ptr<Source> shard, const ShardIndex& index);
  Status RankNamedClasses(const std::vector<std::string>& classes);
  Status CountLabelsFromZero(std::optional<int32_t> first_label);
  Status NameClasses(std::vector<std::string> names, const std::string& where);
  void TakeWords(std::vector<std::string> described);

  std::vector<std::shared_ptr<Source>> shards_;
  std::vector<std::string> checksums_;
  std::vector<uint32_t> shard_sizes_;
  std::vector<Place> places_;
  int32_t first_label_ = 0;                       ///< that the files count from
  std::map<int32_t, std::string> class_names_;    ///< by label, as the shards say
  SetNotes scanned_;                              ///< of the shards that had no index
  std::map<int32_t, std::string> words_;          ///< likewise
  std::map<std::string, int32_t> named_classes_;  ///< of shards with labels_by_name: their numbers for now
  bool has_numbered_ = false;                     ///< some shard has no labels_by_name
  std::string keys_;                              ///< one after the other, each ended by 0
  std::string restarts_;                          ///< RestartIndex of one image after the other
};

/// Whether a file is a shard by its name: .tar, .rec, .tfrecord, or TFRecord's "train-00000-of-01024".
bool IsShardName(std::string_view name);

/// All that a pattern with braces stands for, in order: "a-{08..10}.tar" is a-08.tar, a-09.tar, a-10.tar,
/// "{x,y}" is x and y. Errors: kInvalidArgument for a brace that is not closed, or more than a million names.
Result<std::vector<std::string>> ExpandBraces(const std::string& pattern);

}  // namespace imgd::data
