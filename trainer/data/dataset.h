#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "common/error.h"
#include "trainer/data/restart_index.h"

namespace imgd::data {

/// Memory for one file that is read again and again: it only grows.
struct FileBuffer {
  std::vector<uint8_t> memory;
  size_t size = 0;       ///< of the file that is in it
  std::stop_token stop;  ///< of its reader: breaks off a read that waits for a server
  std::span<const uint8_t> bytes() const { return {memory.data(), size}; }
  /// Room for `n` bytes, which become the buffer's content.
  std::span<uint8_t> Take(size_t n) {
    if (memory.size() < n) memory.resize(n);
    size = n;
    return {memory.data(), n};
  }
};

/// What a run reads: numbered images with labels, each as the bytes of its file. Immutable once opened; all
/// calls may come from any thread.
class Dataset {
 public:
  /// A file longer than this is refused, unread.
  static constexpr uint64_t kMaxFileBytes = uint64_t{256} << 20;

  virtual ~Dataset() = default;

  size_t size() const { return labels_.size(); }
  /// Names of the classes in the order of their labels.
  const std::vector<std::string>& classes() const { return classes_; }
  /// What people call the classes, such as "tench, Tinca tinca", in the order of their labels; empty where
  /// nothing says it of any, an empty text where nothing says it of that one.
  const std::vector<std::string>& class_words() const { return class_words_; }
  /// What its reader passed over and people should know of: a sentence each.
  const std::vector<std::string>& notes() const { return notes_; }
  int32_t label(size_t i) const { return labels_[i]; }

  /// What people call image i: "n01440764/n01440764_10026.JPEG".
  virtual std::string name(size_t i) const = 0;
  /// Where it can be looked for: the path of its file, or of its shard and its place there.
  virtual std::string place(size_t i) const = 0;
  /// How many images each shard has, in the order of their numbers; empty where a shuffled order costs no
  /// more to read than any other.
  virtual const std::vector<uint32_t>& shard_sizes() const = 0;
  /// How many bytes the file of image i has. Errors: kDataLoss where it is no file that could be read.
  virtual Result<uint64_t> FileBytes(size_t i) const = 0;
  /// Its width and height in pixels where they are known without reading it; else 0, 0.
  virtual std::pair<uint32_t, uint32_t> KnownSize(size_t i) const {
    static_cast<void>(i);
    return {0, 0};
  }
  /// The bytes of image i. Errors: those of the file system or server; kDataLoss when it is not what the
  /// index says; kCancelled after `out.stop`.
  virtual Status Read(size_t i, FileBuffer& out) const = 0;
  /// What is known of the restart markers in image i's file; lasts as long as the set. Empty: nothing.
  virtual RestartIndex restarts(size_t i) const {
    static_cast<void>(i);
    return {};
  }
  /// Told which images will be read next, in about this order, so that what is far away can be fetched ahead.
  /// Returns at once.
  virtual void WillRead(std::span<const uint32_t> samples) const { static_cast<void>(samples); }

 protected:
  std::vector<std::string> classes_;
  std::vector<std::string> class_words_;
  std::vector<int32_t> labels_;
  std::vector<std::string> notes_;
};

/// Whether `where` names shards, rather than a folder of images.
bool IsShardSet(const std::string& where);

/// Opens what a job file's data.train names: a folder with one folder for each class, shards (`shard_set.h`)
/// here or far away, or ImageNet's ILSVRC2012_img_val.tar with the development kit beside it (`ilsvrc.h`).
/// Errors: kNotFound, kInvalidArgument, saying what was found instead of a data set.
Result<std::unique_ptr<Dataset>> OpenDataset(const std::string& where);

}  // namespace imgd::data
