#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/error.h"
#include "common/job_kind.h"
#include "common/notify_rules.h"
#include "common/sweep_spec.h"

namespace imgd {

class YamlEditor;

/// A job file, or a job's text over the network, is not longer.
constexpr size_t kMaxJobFileBytes = size_t{1} << 20;

/// A job as its file describes it. `docs/job-file.md` is the same in words.
/// Every default here is what a job gets that does not say otherwise.
struct JobSpec {
  std::string name;           ///< [A-Za-z0-9._-], 1 to 63 characters; required
  std::string project;        ///< that its devices count for, of quotas; as name, or empty
  int priority = 0;           ///< -1000 to 1000; higher goes first
  uint64_t seed = 0;          ///< of initialisation, order and augmentation
  int64_t grace_ms = 10'000;  ///< between SIGTERM and SIGKILL
  int max_restarts = 10;      ///< how often a failed run goes back to the queue
  bool preemptible = true;    ///< jobs of a higher priority may have its devices
  int64_t time_limit_ms = 0;  ///< that it may hold its nodes for, over all starts; 0 for no limit

  /// Names of secrets that its ranks get in their environment; which they may be is the node's to say.
  std::vector<std::string> secrets;

  /// Who is told what becomes of it; empty for those that the operator says for its project and owner.
  std::optional<std::vector<NotifyRule>> notify;

  /// A job that has to end before this one starts.
  struct After {
    std::string job;          ///< its number, or its name
    std::string when = "ok";  ///< ok, any or failed: how it has to have ended
  };
  std::vector<After> after;
  int64_t not_before_us = 0;  ///< it starts at this time or later, microseconds since 1970 UTC; 0: at once
  int64_t not_before_delay_ms = 0;  ///< the same, from when it is submitted
  std::optional<SweepSpec> sweep;   ///< many jobs, that differ from this file by some settings

  /// What follows the resources, the waits and `checkpoint.dir` is only of training.
  JobKind kind = JobKind::kTraining;

  /// The program of a command.
  struct Command {
    std::vector<std::string> run;            ///< the program and its arguments; of a text: /bin/sh -c TEXT
    bool per_node = false;                   ///< one process a node, with all its devices, not one a device
    std::map<std::string, std::string> env;  ///< variables of its own
    std::string dir;                         ///< absolute path to run in; empty for the job's own folder
  } command;

  /// A conversion of a data set.
  struct Convert {
    std::string source;                ///< absolute path, pattern or URL
    std::string target;                ///< absolute path of the new folder
    std::vector<std::string> options;  ///< of `imgcli dataset convert`
    std::string registers;             ///< name that the set gets with imgd; empty for none
  } convert;

  struct Resources {
    int nodes = 1;                         ///< nodes in the gang, at least
    int max_nodes = 1;                     ///< at most; more than `nodes` where the gang is elastic
    int64_t resize_interval_ms = 600'000;  ///< that a start of an elastic gang lasts before it may grow
    int ranks_per_node = 1;                ///< ranks, each with a GPU or CPU slot, on each node
    bool gpu = false;                      ///< a CPU slot does not do
    bool cpu = false;                      ///< a GPU does not do
    std::vector<std::string> gpu_models;   ///< words of the GPU's name, one of which it has; empty for any
    int64_t gpu_memory_gib = 0;            ///< of each GPU, at least, as it is sold
    bool whole_nodes = false;              ///< no other job on its nodes
    std::map<std::string, std::vector<std::string>> labels;      ///< of each node, one of the values
    std::map<std::string, std::vector<std::string>> not_labels;  ///< none of the values
  } resources;

  /// What the job is, in words; nothing depends on it. Recipes fill it in.
  struct About {
    std::string title;
    std::string source;    ///< where the settings come from
    std::string result;    ///< what the source reports
    std::string hardware;  ///< that the source used
  } about;

  struct Model {
    std::string name = "resnet50";    ///< one of ModelNames()
    int classes = 0;                  ///< 0: as many as the training set has
    bool zero_init_residual = false;  ///< residual blocks begin as the identity (torchvision's argument)
    bool deep_stem = false;           ///< ResNets: three 3x3 convolutions in place of the first
    bool average_shortcut = false;    ///< ResNets: shortcuts average where they make the image smaller
    bool blurpool = false;            ///< ResNets: smooth before each stride
    std::optional<double> drop_path;  ///< share of images that skip the last block; empty: the model's own
    std::string init_from;            ///< file of weights to begin with; empty for random ones
    std::vector<std::string> freeze;  ///< beginnings of the names of parameters that stay as they are
  } model;

  /// What images are normalised by, of values from 0 to 1: red, green, blue. ImageNet's, which torchvision's
  /// models expect.
  struct Normalisation {
    std::array<double, 3> mean = {0.485, 0.456, 0.406};
    std::array<double, 3> std = {0.229, 0.224, 0.225};
    bool operator==(const Normalisation&) const = default;
  };

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
    Normalisation normalisation;
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
    int until = 0;                 ///< epochs of the run that are done at its end
    int image_size = 224;          ///< as in Data
    int global_batch = 256;        ///< as in Train
    double min_scale = 0.08;       ///< as in Data
    std::string train;             ///< the same images, resized before; empty for Data's
    std::optional<double> lr;      ///< learning rate at its start; all phases have one, or none
    std::optional<double> lr_end;  ///< at its end, linearly; empty for lr
  };
  std::vector<Phase> phases;  ///< in order, up to train.epochs; empty for one with the settings of the others

  struct Train {
    int epochs = 90;
    int global_batch = 256;          ///< images in a step, over all ranks
    std::string precision = "bf16";  ///< fp32, bf16 or fp16
    std::string device = "auto";     ///< auto, cpu or cuda
    int log_every_steps = 50;        ///< also at least once a second
    int threads = 0;                 ///< compute threads of each rank on a CPU; 0 for its share of the cores
    bool bind_numa = true;           ///< ranks keep to the cores and the memory beside their GPU
    int max_steps = 0;               ///< end after so many steps; 0 for no limit
    bool freeze_batch_norm = false;  ///< batch norm in evaluation mode, its statistics fixed
    bool sync_batch_norm = false;    ///< batch norm's statistics are of all ranks' images
    bool cuda_graph = false;         ///< the forward and backward pass of a step are recorded once, on a GPU
    int eval_every_epochs = 1;
    int accumulate = 1;  ///< parts that a rank's share of a step is computed in, one after the other
  } train;

  /// What follows the number of ranks where that is not the one that the file is for.
  struct Elastic {
    std::string rule;  ///< keep_global_batch or linear_scaling; empty: nothing does
    int ranks = 1;     ///< that the batch, accumulate and the rates are for
  } elastic;

  struct Optimizer {
    std::string kind = "sgd";  ///< sgd, lars or adamw
    double lr = 0.1;           ///< for the global batch as it is; nothing is scaled behind your back
    double momentum = 0.9;     ///< sgd and lars
    bool nesterov = true;      ///< sgd and lars
    double beta1 = 0.9;        ///< adamw
    double beta2 = 0.999;      ///< adamw
    double epsilon = 1e-8;     ///< adamw
    double trust = 0.001;      ///< lars: trust coefficient
    double weight_decay = 1e-4;
    double norm_weight_decay = 0;  ///< of norm layers, and biases where they have none of their own
    std::optional<double> bias_weight_decay;  ///< of the biases of other layers
    double layer_decay = 1;                   ///< each layer's rate is so many times that of the next one
    double clip_norm = 0;                     ///< greatest norm of all gradients together; 0 for no limit
  } optimizer;

  struct Loss {
    std::string kind = "cross_entropy";  ///< cross_entropy or bce
    double label_smoothing = 0.1;
  } loss;

  struct Schedule {
    std::string kind = "cosine";         ///< cosine, polynomial, step or one_cycle; phases with lr need none
    double warmup_epochs = 5;            ///< linear up to lr
    std::optional<double> warmup_start;  ///< share of lr that the first step has; empty: a step's worth
    double end_lr = 0;                   ///< cosine, polynomial and one_cycle: after the last step
    double power = 1;                    ///< polynomial
    std::vector<double> milestones;      ///< step: epochs after which the rate is multiplied by gamma
    double gamma = 0.1;                  ///< step
  } schedule;

  /// A running average of the weights, which validation is of.
  struct Ema {
    double decay = 0;     ///< share that stays at each update; 0 for no average
    int every_steps = 1;  ///< between updates
  } ema;

  /// What is done when training goes wrong.
  struct Guard {
    std::string action = "stop";  ///< stop, skip or rollback
    double loss_factor = 0;       ///< a loss of so many times its running mean is wrong too; 0: only one that
                                  ///< is no finite number
    int every_steps = 50;         ///< between looks at the loss, for rollback and loss_factor
    int max_times = 10;           ///< steps left out, or rollbacks, before the run stops
    /// Whether it looks at more than the figures that are reported anyway.
    bool on() const { return action != "stop" || loss_factor > 0; }
  } guard;

  /// Ends the run when validation gets no better.
  struct EarlyStop {
    int patience = 0;             ///< validation passes without a better result; 0 for never
    std::string metric = "top1";  ///< top1 or loss
    double min_delta = 0;         ///< what is better by no more than this is not better
  } early_stop;

  struct Checkpoint {
    std::string dir;            ///< absolute path that all nodes share; empty for the daemon's default
    int every_epochs = 1;       ///< 0 for never by epochs
    int every_steps = 0;        ///< 0 for never by steps
    int keep = 3;               ///< newest so many are kept
    int keep_best = 1;          ///< and so many with the highest validated top-1
    int keep_every_epochs = 0;  ///< and those after a multiple of so many epochs; 0 for none
    int keep_every_steps = 0;   ///< and those after a multiple of so many steps; 0 for none
  } checkpoint;

  /// Files of figures, which rank 0 writes (docs/metrics.md).
  struct Report {
    bool tensorboard = true;  ///< TensorBoard's event files
    bool json_lines = false;  ///< the same figures, an object a line
    std::string dir;          ///< absolute path; empty for `logs` in the job's own checkpoint folder
  } report;

  /// How ranks talk to each other.
  struct Dist {
    std::map<std::string, std::string> nccl;    ///< NCCL_* variables of the ranks
    std::string gradient_compression = "none";  ///< none or bf16: as what gradients travel
    int bucket_mb = 25;                         ///< gradients that travel together, MiB
    bool allow_tcp = false;                     ///< though there is a fast fabric between the nodes
  } dist;

  /// How long a rank may stand still, milliseconds, before its run is ended as stuck; 0 for ever.
  struct Limits {
    int64_t silence_ms = 15'000;      ///< its process gives no sign of life
    int64_t step_ms = 15'000;         ///< in a step; at least five median steps
    int64_t input_ms = 75'000;        ///< waiting for input; more than the 60 s that reads are tried again
    int64_t start_ms = 600'000;       ///< up to the first step
    int64_t autotune_ms = 300'000;    ///< in the first steps of a start or phase
    int64_t validation_ms = 600'000;  ///< between two batches
    int64_t checkpoint_ms = 600'000;  ///< for a checkpoint to be copied or written
  } limits;

  std::string text;  ///< the YAML that all this was read from

  /// The phases, of which there is at least one.
  std::vector<Phase> AllPhases() const;
  bool IsElastic() const { return resources.max_nodes > resources.nodes; }
  /// Of the largest gang that it may be.
  int WorldSize() const { return resources.max_nodes * resources.ranks_per_node; }
};

/// Names of the models that a job can ask for, in the order of common/models.def.
const std::vector<std::string>& ModelNames();

/// "ResNet", "ConvNeXt", ...; empty for a name that is not in ModelNames().
std::string_view ModelFamily(std::string_view name);

/// Reads a job file. `file` names it in errors. On failure: every error, in the order of the file, each with
/// line, column and field. Values that depend on each other are checked too (batch divisible by world size,
/// ...).
tl::expected<JobSpec, std::vector<Error>> ParseJobFile(std::string_view text, const std::string& file);
/// The same of a file that is being edited, of which `text` is the text. Errors as of reading the text.
tl::expected<JobSpec, std::vector<Error>> ParseJobFile(const YamlEditor& editor, std::string text,
                                                       const std::string& file);

}  // namespace imgd
