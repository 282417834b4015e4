#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "common/error.h"
#include "trainer/data/convert_report.h"
#include "trainer/data/dataset.h"
#include "trainer/data/shard_writer.h"

namespace imgd::data {

constexpr const char* kReportName = "report.json";

struct ConvertOptions {
  std::string name = "train";                  ///< of the set: "<name>-000000.tar" and so on
  uint64_t shards = 0;                         ///< how many; 0: as many as shard_bytes asks for
  uint64_t shard_bytes = uint64_t{256} << 20;  ///< about how large one is, where `shards` is 0
  uint64_t seed = 0;                           ///< of the order in which images are put into the shards
  int jobs = 1;                                ///< threads, each with a shard of its own
  OutputForm form = OutputForm::kWebDataset;
  ImageRules images;
  int32_t first_label = 1;  ///< TFRecord: what label 0 is written as, 0 or 1
  bool index = true;        ///< our own index beside each shard (WebDataset, RecordIO)
  bool strict = false;      ///< an image that would be left out, or a wrong checksum, is an error
  BoxesOf boxes;            ///< TFRecord: what image/object/bbox gets
};

struct ConvertResult {
  uint64_t shards = 0;
  uint64_t kept = 0;    ///< of them, that an interrupted run before had finished
  uint64_t images = 0;  ///< written
  uint64_t bytes = 0;   ///< of all shards, or of all files of an ImageFolder
  ConvertReport report;
  std::vector<std::string> remarks;  ///< sentences on what the form made of the set
};

/// How far it is.
struct ConvertState {
  const char* doing = "";  ///< "checking" the source's checksums, then "writing"
  uint64_t done = 0;       ///< images
  uint64_t total = 0;      ///< images
  uint64_t bytes = 0;      ///< read so far
  uint64_t skipped = 0;    ///< of the images done, those in shards that an earlier run had finished
};
/// Told from any thread, one call at a time; false stops the conversion.
using ConvertProgress = std::function<bool(const ConvertState&)>;

/// Writes a data set into the folder `out`, in the form that the options name, in an order shuffled by the
/// seed (an ImageFolder has none), so that each shard is a sample of the whole. Images go through
/// ImagePreparer: what doesn't decode is left out and reported. Beside the shards shards.json
/// (docs/formats.md), and report.json last. The same set and options give the same bytes, whatever `jobs` is.
/// A run that was interrupted goes on where it stopped when it is started again with the same set and
/// options: shards that were finished are kept. Errors: kCancelled when `progress` stopped it;
/// kInvalidArgument for options out of range, for two images of one name, and for an `out` that holds
/// something else; kDataLoss where `strict` says so; those of the set and of the file system.
Result<ConvertResult> WriteShards(const Dataset& set, const ConvertOptions& options, const std::string& out,
                                  const ConvertProgress& progress = {});

}  // namespace imgd::data
