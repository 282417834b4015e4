#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/error.h"
#include "trainer/data/repair.h"

namespace imgd::data {

/// What a conversion, or a part of one, did to the images. Lists of names are bounded, counts are not.
struct ConvertReport {
  static constexpr size_t kMaxNames = 100;
  struct Entry {
    uint64_t count = 0;
    std::vector<std::string> names;  ///< the first kMaxNames, each with what the decoder said, if it did
    bool operator==(const Entry&) const = default;
  };
  using Entries = std::map<std::string, Entry>;  ///< by NameOf(Finding)

  uint64_t written = 0;
  uint64_t resized = 0;
  uint64_t marked = 0;  ///< got restart markers
  Entries repaired;     ///< and written as JPEGs in RGB
  Entries left_out;
  Entries as_is;    ///< found, and written as they are, since repairs were not wanted
  Entries renamed;  ///< by reason: "not_unique", "unsafe_path"; each with its new name
  Entry checksums;  ///< places in the source whose checksum is wrong

  void Add(const PreparedImage& image, const std::string& name, bool repairs);
  void AddLeftOut(Finding finding, std::string what);
  void AddRenamed(const std::string& reason, std::string what);
  void Merge(const ConvertReport& other);
  uint64_t LeftOut() const;
  bool operator==(const ConvertReport&) const = default;
};

/// One finished shard's note: what shards.json will say of it, and its part of the report.
struct ShardNote {
  std::string name;
  uint64_t bytes = 0;
  uint32_t images = 0;
  std::string crc32c;
  ConvertReport report;

  std::string ToJson() const;
  /// Errors: kDataLoss naming `name`.
  static Result<ShardNote> Parse(const std::string& json, const std::string& name);
};

/// What report.json says besides the counts.
struct ReportHead {
  std::string plan;  ///< JSON: of which conversion it is
  std::string name;
  std::string form;
  uint64_t shards = 0;
  uint64_t bytes = 0;  ///< of all shards or files
  uint64_t source_images = 0;
  ImageRules rules;
  std::vector<std::string> remarks;  ///< sentences
};

std::string ReportToJson(const ReportHead& head, const ConvertReport& report);

/// What a report.json says of the conversion that wrote it.
struct FinishedReport {
  std::string plan;  ///< as ReportHead has it; empty where it has none
  uint64_t shards = 0;
  uint64_t bytes = 0;
  std::vector<std::string> remarks;
  ConvertReport report;
};
/// Errors: kDataLoss naming `name`.
Result<FinishedReport> ParseReport(const std::string& json, const std::string& name);

}  // namespace imgd::data
