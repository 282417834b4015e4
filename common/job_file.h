#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/error.h"

namespace imgd {

/// A job file, or a job's text over the network, is not longer.
constexpr size_t kMaxJobFileBytes = size_t{1} << 20;

/// A training job as its file describes it. `docs/job-file.md` is the same in words.
/// Every default here is what a job gets that does not say otherwise.
struct JobSpec {
  std::string name;           ///< [A-Za-z0-9._-], 1 to 63 characters; required
  int priority = 0;           ///< -1000 to 1000; higher goes first
  uint64_t seed = 0;          ///< of initialisation, order and augmentation
  int64_t grace_ms = 10'000;  ///< between SIGTERM and SIGKILL
  int max_restarts = 10;      ///< how often a failed run goes back to the queue

  struct Resources {
    int nodes = 1;           ///< nodes in the gang
    int ranks_per_node = 1;  ///< ranks, each with a GPU or CPU slot, on each node
  } resources;

  struct Model {
    std::string name = "resnet50";    ///< resnet18, resnet34 or resnet50
    int classes = 0;                  ///< 0: as many as the training set has
    bool zero_init_residual = false;  ///< residual blocks begin as the identity (torchvision's argument)
  } model;

  struct Data {
    std::string train;            ///< ImageFolder: one folder for each class; required
    std::string val;              ///< the same; empty for no validation
    int image_size = 224;         ///< side of a training crop, pixels
    int val_resize = 0;           ///< short side before the centre crop; 0 for image_size * 256 / 224
    int val_size = 0;             ///< side of the validation crop; 0 for image_size
    double min_scale = 0.08;      ///< least share of the area that a training crop has
    bool flip = true;             ///< mirror half of the training images
    int workers = 0;              ///< decoding threads of each rank; 0 for its share of the cores
    int max_bad_images = 100;     ///< images that can't be decoded before a rank gives up
    int segments = 1;             ///< K: how many streams a step's samples come from (docs/data-order.md)
    std::string decode = "fast";  ///< exact or fast: whether the JPEG decoder may shrink
    std::string decoder = "cpu";  ///< cpu or nvjpeg: where training images are decoded
    std::string val_decode = "exact";  ///< the same for validation
    std::string epoch_mode = "exact";  ///< exact or resampled
    std::string val_shape = "square";  ///< square or rectangular
    int prefetch = 4;                  ///< batches of each rank that are made ahead, at most
    int memory_mib = 0;                ///< of these batches, MiB; 0 for no limit
  } data;

  struct Augment {
    std::string policy = "none";            ///< none, randaugment or trivialaugment
    int ops = 2;                            ///< randaugment: operations for each image
    int magnitude = 9;                      ///< randaugment: their strength, 0 to 30
    std::string interpolation = "nearest";  ///< nearest or bilinear, where pixels move
    double mixup = 0;                       ///< alpha; 0 for none
    double cutmix = 0;                      ///< alpha; 0 for none
    double erasing = 0;                     ///< chance that a box of an image is erased
  } augment;

  /// A stretch of epochs with settings of its own.
  struct Phase {
    int until = 0;            ///< epochs of the run that are done at its end
    int image_size = 224;     ///< as in Data
    int global_batch = 256;   ///< as in Train
    double min_scale = 0.08;  ///< as in Data
    std::string train;        ///< the same images, resized before; empty for Data's
  };
  std::vector<Phase> phases;  ///< in order, up to train.epochs; empty for one with the settings of the others

  struct Train {
    int epochs = 90;
    int global_batch = 256;          ///< images in a step, over all ranks
    std::string precision = "bf16";  ///< fp32, bf16 or fp16
    std::string device = "auto";     ///< auto, cpu or cuda
    int log_every_steps = 50;        ///< also at least once a second
    int threads = 0;                 ///< compute threads of each rank on a CPU; 0 for its share of the cores
    int max_steps = 0;               ///< end after so many steps; 0 for no limit
    bool freeze_batch_norm = false;  ///< batch norm in evaluation mode, its statistics fixed
    int eval_every_epochs = 1;
  } train;

  struct Optimizer {
    double lr = 0.1;  ///< for the global batch as it is; nothing is scaled behind your back
    double momentum = 0.9;
    bool nesterov = true;
    double weight_decay = 1e-4;  ///< not on norm layers and biases
    double clip_norm = 0;        ///< greatest norm of all gradients together; 0 for no limit
  } optimizer;

  struct Schedule {
    double warmup_epochs = 5;  ///< linear from 0 to lr, then cosine to 0
    double label_smoothing = 0.1;
  } schedule;

  struct Checkpoint {
    std::string dir;       ///< absolute path that all nodes share; empty for the daemon's default
    int every_epochs = 1;  ///< 0 for never by epochs
    int every_steps = 0;   ///< 0 for never by steps
    int keep = 3;          ///< newest so many are kept
  } checkpoint;

  /// The phases, of which there is at least one.
  std::vector<Phase> AllPhases() const;
  int WorldSize() const { return resources.nodes * resources.ranks_per_node; }
};

/// Names of the models that a job can ask for.
const std::vector<std::string>& ModelNames();

/// Reads a job file. `file` names it in errors. On failure: every error, in the order of the file, each with
/// line, column and field. Values that depend on each other are checked too (batch divisible by world size,
/// ...).
tl::expected<JobSpec, std::vector<Error>> ParseJobFile(std::string_view text, const std::string& file);

}  // namespace imgd
