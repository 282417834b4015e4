#pragma once

#include <memory>
#include <string>
#include <vector>

#include "trainer/data/dataset.h"

namespace imgd::data {

/// The images of some classes of another set, in its order, with labels of their own.
class Subset final : public Dataset {
 public:
  /// `classes`: names in the order of their new labels; those that `whole` hasn't are classes without images.
  /// Errors: kInvalidArgument when no image is left.
  static Result<std::unique_ptr<Dataset>> Of(std::unique_ptr<Dataset> whole,
                                             std::vector<std::string> classes);

  const Dataset& whole() const { return *whole_; }
  /// Its number in whole().
  uint32_t number(size_t i) const { return picks_[i]; }
  std::string name(size_t i) const override { return whole_->name(picks_[i]); }
  std::string place(size_t i) const override { return whole_->place(picks_[i]); }
  /// None: what is left lies anywhere.
  const std::vector<uint32_t>& shard_sizes() const override { return no_shards_; }
  Result<uint64_t> FileBytes(size_t i) const override { return whole_->FileBytes(picks_[i]); }
  Status Read(size_t i, FileBuffer& out) const override { return whole_->Read(picks_[i], out); }
  void WillRead(std::span<const uint32_t> samples) const override;

 private:
  std::unique_ptr<Dataset> whole_;
  std::vector<uint32_t> picks_;  ///< numbers in whole_
  std::vector<uint32_t> no_shards_;
};

/// What --classes says, sorted and each once: names with commas between, or the lines of a file of that name.
/// Errors: kInvalidArgument when there is none; those of reading the file.
Result<std::vector<std::string>> ParseClasses(const std::string& text);

/// Errors: kInvalidArgument naming one that `set` doesn't have, with some of those that it has.
Status CheckClasses(const Dataset& set, const std::vector<std::string>& wanted, const std::string& where);

}  // namespace imgd::data
