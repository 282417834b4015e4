#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/error.h"
#include "trainer/data/dataset.h"

namespace imgd::data {

// The names under which the archives of images are distributed.
constexpr const char* kIlsvrcTrainArchive = "ILSVRC2012_img_train.tar";
constexpr const char* kIlsvrcValArchive = "ILSVRC2012_img_val.tar";

/// The classes of ILSVRC2012 and what its validation images show, as its development kit says.
struct IlsvrcDevkit {
  struct Synset {
    int32_t id = 0;     ///< ILSVRC2012_ID: not the label
    std::string wnid;   ///< "n01440764"
    std::string words;  ///< "tench, Tinca tinca"; empty where they are not known
  };
  std::string name;             ///< of what it was read from, for messages
  std::vector<Synset> synsets;  ///< those that are classes, sorted by WNID: the label is the rank
  std::vector<int32_t> labels;  ///< of the validation images in the order of their names; may be empty
};

/// Reads ILSVRC2012_devkit_t12.tar.gz, the same as a plain tar, or the folder that it unpacks to
/// (data/meta.mat and data/ILSVRC2012_validation_ground_truth.txt); or a text file that has a WNID for each
/// validation image on a line, in the order of the images' names. Nothing is unpacked to disk.
/// Errors: kNotFound; kDataLoss naming the file and the line.
Result<IlsvrcDevkit> ReadIlsvrcDevkit(const std::string& path);

/// Opens ILSVRC2012_img_val.tar in place: its images by name, line i of the ground truth being that of the
/// i-th. Errors: those of TarReader; kDataLoss when archive and ground truth are not of as many images.
Result<std::unique_ptr<Dataset>> OpenIlsvrcValidation(const std::string& archive, const IlsvrcDevkit& devkit);

/// Opens ILSVRC2012_img_train.tar, a tar of a tar for each class, in place. The label is the rank of the
/// WNID. With a development kit the classes must be its, and have its words. Errors: those of TarReader;
/// kDataLoss naming the classes that differ.
Result<std::unique_ptr<Dataset>> OpenIlsvrcTraining(const std::string& archive, const IlsvrcDevkit* devkit);

/// Whether the file has the name of the validation archive.
bool IsIlsvrcValidationArchive(const std::string& path);

enum class IlsvrcPart { kTrain, kVal };

/// Opens a part of the original distribution. `where`: the folder with the archives under their own names, or
/// the archive. `devkit`: see ReadIlsvrcDevkit; empty: what lies beside the archive, which only the
/// validation part cannot do without. Errors: as above; kNotFound when there is no such archive or no devkit,
/// saying where it is to be had; kInvalidArgument for an archive of the other part.
Result<std::unique_ptr<Dataset>> OpenIlsvrc2012(const std::string& where, IlsvrcPart part,
                                                const std::string& devkit = "");

}  // namespace imgd::data
