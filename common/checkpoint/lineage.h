#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "common/checkpoint/safetensors.h"
#include "common/error.h"
#include "common/job_file.h"

namespace imgd {

/// Where weights come from: lineage.json of a checkpoint, and the metadata "lineage" of exported weights.
struct Lineage {
  uint64_t job_id = 0;  ///< the daemon's; 0 when trained without one
  std::string job;      ///< its name
  uint64_t generation = 0;
  uint64_t step = 0;
  double epoch = 0;
  int world_size = 1;
  std::string model;              ///< "resnet50"
  uint64_t classes = 0;           ///< that the last layer has
  bool deep_stem = false;         ///< as JobSpec::Model
  bool average_shortcut = false;  ///< likewise
  bool blurpool = false;          ///< likewise
  JobSpec::Normalisation normalisation;

  /// A data set as the run saw it.
  struct Data {
    std::string where;  ///< without passwords
    uint64_t images = 0;
    uint64_t classes = 0;
    std::string checksum;  ///< "sha256:...", docs/formats.md
  };
  Data train;
  std::optional<Data> val;

  std::string version;       ///< of the program
  std::string commit;        ///< that it was built from, "-dirty" behind it where files had changed; or empty
  std::string torch;         ///< LibTorch's version
  std::string settings;      ///< digest of the settings that change what is learnt
  std::string resumed_from;  ///< folder of the checkpoint that this start went on from; or empty
  std::string configuration;  ///< the job file as the trainer had it, with its changes
  int64_t written_us = 0;     ///< microseconds since 1970 UTC
  bool is_average = false;    ///< of exported weights: the averaged ones
};

/// One JSON object, indented by 2.
std::string ToJson(const Lineage& lineage);

/// Errors: kDataLoss where it is none of this format.
Result<Lineage> LineageFromJson(std::string_view text);

/// What a file of weights says of its model in its metadata: the name, and the options that leave no trace in
/// names and shapes or would be guessed from them: {"model": "resnet50", "model.blurpool": "true", ...}.
Metadata ModelMetadata(const JobSpec::Model& model);
/// With NormalisationMetadata().
Metadata ModelMetadata(const Lineage& lineage);

/// What images were normalised by, {"data.mean": "[0.485, 0.456, 0.406]", "data.std": ...}, as a job file has
/// it; nothing where metadata don't say it, or not as this writes it.
Metadata NormalisationMetadata(const JobSpec::Normalisation& by);
std::optional<JobSpec::Normalisation> NormalisationIn(const Metadata& metadata);

/// The `model:` of a job file that these metadata are of; only what they say. Empty text where they name no
/// model that we know.
std::string ModelYaml(const Metadata& metadata);

/// Errors: kInvalidArgument where metadata are of another model than the job's; what they don't say fits.
Status CheckModel(const Metadata& metadata, const JobSpec::Model& model);

}  // namespace imgd
