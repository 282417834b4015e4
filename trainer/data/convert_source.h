#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/error.h"
#include "trainer/data/dataset.h"
#include "trainer/data/shard_writer.h"

namespace imgd::data {

enum class SourceForm { kIlsvrc2012, kImageFolder, kWebDataset, kTfRecord, kRecordIo };

/// "ilsvrc2012", "imagefolder", "webdataset", "tfrecord", "recordio".
std::string_view NameOf(SourceForm form);

/// A set of its own within what the user named.
struct SourcePart {
  std::string name;   ///< "train" or "val"; empty where there is only one
  std::string where;  ///< folder, file or pattern
};

struct ConvertSource {
  std::optional<SourceForm> form;  ///< nothing for what can't be seen from its name alone: a URL
  std::vector<SourcePart> parts;   ///< "train" before "val"
};

/// The sets in a folder or a server's URL that holds several: train/, and val/ or validation/, those that are
/// there. Each must hold folders or shards itself: one with images is a class that happens to be called so.
/// Empty for others.
std::vector<SourcePart> PartsOf(const std::string& folder);

/// Looks at what `where` holds: its parts (or ImageNet's two archives, or TFRecords called train-* and
/// validation-* side by side) are each a set. Errors: kNotFound; kInvalidArgument when the form isn't
/// `wanted`, or none at all, saying what was found.
Result<ConvertSource> FindSource(const std::string& where, std::optional<SourceForm> wanted);

struct SourceExtras {
  std::string devkit;                ///< ILSVRC2012's development kit; empty: what lies beside the archives
  std::vector<std::string> classes;  ///< only these, sorted; empty: all
};

/// Opens one part. With `classes_of_train` (those of the part before) the labels are the same as there, also
/// where this part lacks some of the classes. Errors: those of OpenDataset; kInvalidArgument for a class of
/// `extras` that isn't there, and for one that the training part doesn't have.
Result<std::unique_ptr<Dataset>> OpenPart(const ConvertSource& source, const SourcePart& part,
                                          const SourceExtras& extras,
                                          const std::vector<std::string>* classes_of_train = nullptr);

/// That a conversion of `source` does not write into what it reads. Errors: kInvalidArgument.
Status CheckOutside(const std::string& source, const std::string& out);

struct Boxes {
  BoxesOf of;
  std::string id;  ///< names, sizes and checksums of the archives
};
/// The boxes of archives of annotations, for data sets of these classes; those of an image are from the first
/// archive that has it. Errors: those of the archives.
Result<Boxes> OpenBoxes(const std::vector<std::string>& archives, const std::vector<std::string>& classes);

}  // namespace imgd::data
