#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "common/error.h"
#include "trainer/data/convert_report.h"
#include "trainer/data/dataset.h"
#include "trainer/data/output_folder.h"
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
  BoxesOf boxes;            ///< TFRecord: what image/object/bbox gets, before what the source has itself
  std::string boxes_id;     ///< which boxes they are: a conversion is gone on with only with the same
};

/// Errors: kInvalidArgument for what is out of range.
Status CheckOptions(const ConvertOptions& options);

struct ConvertResult {
  uint64_t shards = 0;
  uint64_t kept = 0;       ///< of them, that an interrupted run before had finished
  bool was_there = false;  ///< all of it, by a run before; the rest is what that run said
  uint64_t images = 0;     ///< written
  uint64_t bytes = 0;      ///< of all shards, or of all files of an ImageFolder
  ConvertReport report;
  std::vector<std::string> remarks;  ///< sentences on what the form made of the set
};

/// How far it is.
struct ConvertState {
  const char* doing = "";    ///< "checking" the source's checksums, then "writing"
  uint64_t done = 0;         ///< images
  uint64_t total = 0;        ///< images
  uint64_t bytes = 0;        ///< read so far
  uint64_t skipped = 0;      ///< of the images done, those in shards that an earlier run had finished
  uint64_t shards_done = 0;  ///< or blocks of an ImageFolder's files
  uint64_t shards = 0;       ///< of so many
};
/// Told from any thread, one call at a time; false stops the conversion.
using ConvertProgress = std::function<bool(const ConvertState&)>;

/// Writes a data set into a folder, in the form that the options name, in an order shuffled by the seed (an
/// ImageFolder has none), so that each shard is a sample of the whole. Images go through ImagePreparer: what
/// doesn't decode, and what is no plain file, is left out and reported; names are made safe and unique
/// (output_names.h). Beside the shards shards.json (docs/formats.md), and report.json last. The same set and
/// options give the same bytes, whatever `jobs` is. A run that was interrupted goes on where it stopped when
/// it is started again with the same set and options: shards that were finished are kept, and where all was
/// finished nothing is written.
class Conversion {
 public:
  /// Looks at all that can be seen before anything is written. `set` must outlive it. Errors: kCancelled when
  /// `progress` stopped it; kInvalidArgument for options out of range and for a folder with a part of another
  /// conversion; kAlreadyExists for one with something else; those of the set.
  static Result<std::unique_ptr<Conversion>> Prepare(const Dataset& set, ConvertOptions options,
                                                     OutputFolder out, const ConvertProgress& progress = {});
  virtual ~Conversion() = default;

  /// Once. Errors: kCancelled when `progress` stopped it; kDataLoss where `strict` says so, or where none of
  /// the images could be used; those of the set and of the file system.
  virtual Result<ConvertResult> Run(const ConvertProgress& progress = {}) = 0;
};

/// Both, with the folder locked meanwhile.
Result<ConvertResult> WriteShards(const Dataset& set, const ConvertOptions& options, const std::string& out,
                                  const ConvertProgress& progress = {});

}  // namespace imgd::data
