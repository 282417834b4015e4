#include "trainer/loop/session.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "common/checkpoint/store.h"
#include "common/sha256.h"
#include "trainer/dist/device.h"
#include "trainer/dist/nccl_log.h"
#include "trainer/loop/init_from.h"
#include "trainer/loop/lineage_of.h"
#include "trainer/loop/saving.h"
#include "trainer/loop/validation.h"
#include "trainer/numa.h"

namespace imgd::trainer {
namespace {

/// Cores that this process may use, shared among the ranks of this node.
int ShareOfCores(const Environment& env) {
  return std::max(1, static_cast<int>(AllowedCores().size()) / env.local_world_size);
}

/// Data that can't be used are the job's fault, not this rank's. A server that is away is nobody's: another
/// try may reach it. Its code is not a broken collective's, which the trainer knows by kUnavailable.
Result<std::unique_ptr<data::Dataset>> OpenData(const char* key, const std::string& where) {
  auto set = data::OpenDataset(where);
  if (set) return set;
  Error error = set.error();
  error.message = fmt::format("{}: {}", key, error.message);
  if (error.code == ErrorCode::kUnavailable || error.code == ErrorCode::kDeadlineExceeded) {
    error.code = ErrorCode::kInternal;
  } else if (error.code != ErrorCode::kResourceExhausted) {
    error.code = ErrorCode::kInvalidArgument;
  }
  return tl::unexpected<Error>(std::move(error));
}

Status CheckClasses(const Session& session) {
  const auto& classes = session.train->classes();
  const int wanted = session.spec.model.classes;
  if (wanted != 0 && static_cast<size_t>(wanted) != classes.size()) {
    return Fail(
        ErrorCode::kInvalidArgument,
        "model.classes is {}, but data.train ({}) has {} classes; leave model.classes out to take them all",
        wanted, session.spec.data.train, classes.size());
  }
  if (!session.val || session.val->classes() == classes) return {};
  const auto& others = session.val->classes();
  std::vector<std::string> different;
  std::set_symmetric_difference(classes.begin(), classes.end(), others.begin(), others.end(),
                                std::back_inserter(different));
  const bool in_train = std::binary_search(classes.begin(), classes.end(), different.front());
  return Fail(
      ErrorCode::kInvalidArgument,
      "data.val ({}) has {} classes and data.train has {}; they must be the same, but '{}' is only in {}",
      session.spec.data.val, others.size(), classes.size(), different.front(),
      in_train ? "data.train" : "data.val");
}

/// A set that was resized before must be of the same images under the same numbers, as far as that shows.
Status CheckResized(const Session& session, const data::Dataset& resized, const std::string& where) {
  const auto& train = *session.train;
  if (resized.size() != train.size() || resized.classes() != train.classes()) {
    return Fail(
        ErrorCode::kInvalidArgument,
        "phases: {} has {} images in {} classes and data.train has {} in {}; they must be the same images",
        where, resized.size(), resized.classes().size(), train.size(), train.classes().size());
  }
  for (size_t i = 0; i < train.size(); ++i) {
    if (resized.label(i) == train.label(i)) continue;
    return Fail(ErrorCode::kInvalidArgument,
                "phases: image {} is {} in {} but {} in data.train, of another class; the sets must have the "
                "same images in the same order",
                i, resized.name(i), where, train.name(i));
  }
  return {};
}

Status OpenAllData(Session& session) {
  IMGD_ASSIGN(session.train, OpenData("data.train", session.spec.data.train));
  if (!session.spec.data.val.empty()) {
    IMGD_ASSIGN(session.val, OpenData("data.val", session.spec.data.val));
  }
  IMGD_TRY(CheckClasses(session));
  session.phases = Phases(session.spec, session.train->size());
  for (const Phase& phase : session.phases.all()) {
    session.resized.push_back(nullptr);
    if (phase.train.empty()) continue;
    IMGD_ASSIGN(session.resized.back(), OpenData("phases", phase.train));
    IMGD_TRY(CheckResized(session, *session.resized.back(), phase.train));
  }
  return {};
}

/// The steps of the run, once it is known at which one it goes on.
void PlanSteps(Session& session) {
  const auto& spec = session.spec;
  if (spec.elastic.rule == "linear_scaling") {
    FollowRanks(spec, session.train->size(), session.env.world_size, session.state);
  }
  session.phases = Phases(spec, session.train->size(), session.state.resizes);
  session.total_steps = session.phases.total_steps();
  if (spec.train.max_steps > 0) {
    session.total_steps = std::min(session.total_steps, static_cast<uint64_t>(spec.train.max_steps));
  }
}

/// A folder that can't be written to is found before the training, not after the first epoch. A server that
/// is away may come back.
Result<std::shared_ptr<CheckpointStore>> OpenStore(const JobSpec& spec, const Environment& env) {
  const auto root = CheckpointRoot(spec, env.checkpoint_dir);
  auto store = OpenCheckpoints(root, LocalFolderOf(spec, env) / "staging");
  const Status written = store ? (*store)->TryToWrite() : tl::unexpected(store.error());
  if (written) return store;
  Error error = written.error();
  error.message = "checkpoint.dir: " + error.message;
  const bool away = IsInS3(root) && error.code == ErrorCode::kInternal;
  if (error.code != ErrorCode::kResourceExhausted && !away) error.code = ErrorCode::kInvalidArgument;
  return tl::unexpected<Error>(std::move(error));
}

Status SetUpSaving(Session& session) {
  IMGD_ASSIGN(session.checkpoints, OpenStore(session.spec, session.env));
  CheckpointPlace place{.store = session.checkpoints,
                        .generation = session.env.generation,
                        .keep = [&session] { return KeepRuleOf(session); }};
  session.saver = std::make_unique<CheckpointSaver>(std::move(place), session.reporter);
  return {};
}

std::string Describe(const data::Dataset& set) {
  Sha256 hash;
  for (size_t i = 0; i < set.size(); ++i) hash.Update(set.name(i) + "\n");
  return fmt::format("{} images in {} classes (list {})", set.size(), set.classes().size(),
                     hash.Finish().substr(0, 8));
}

/// Ranks that see other data or another job would train on, and on nothing sensible.
Status CheckThatAllSeeTheSame(Session& session) {
  if (session.env.world_size == 1) return {};
  session.gang->SetPosition(0, "comparing data sets");
  const std::string ours =
      fmt::format("training {}, validation {}, settings {}", Describe(*session.train),
                  session.val ? Describe(*session.val) : "none", JobDigest(session.spec).substr(0, 8));
  const std::string rank0s = session.gang->BroadcastFromRank0(ours);
  std::vector<int64_t> differs(static_cast<size_t>(session.env.world_size));
  differs[static_cast<size_t>(session.env.rank)] = ours == rank0s ? 0 : 1;
  differs = session.gang->StartSum(differs).Wait();
  if (ours != rank0s) {
    return Fail(ErrorCode::kInvalidArgument,
                "rank {} does not see what rank 0 sees: it has {}; rank 0 has {}", session.env.rank, ours,
                rank0s);
  }
  const auto other = std::find(differs.begin(), differs.end(), 1);
  if (other == differs.end()) return {};
  return Fail(ErrorCode::kInvalidArgument, "rank {} sees other data or settings than rank 0 ({})",
              other - differs.begin(), rank0s);
}

/// The parameters whose names begin as `model.freeze` says stay as they are.
Status Freeze(Session& session) {
  for (const auto& beginning : session.spec.model.freeze) {
    bool found = false;
    for (auto& [name, parameter] : Parameters(*session.model)) {
      if (!name.starts_with(beginning)) continue;
      parameter.set_requires_grad(false);
      found = true;
    }
    if (!found) {
      return Fail(ErrorCode::kInvalidArgument,
                  "model.freeze: {} has no parameter whose name begins with '{}'", session.spec.model.name,
                  beginning);
    }
  }
  const auto parameters = Parameters(*session.model);
  if (std::none_of(parameters.begin(), parameters.end(),
                   [](const auto& p) { return p.second.requires_grad(); })) {
    return Fail(ErrorCode::kInvalidArgument, "model.freeze leaves nothing to learn");
  }
  return {};
}

/// As a copy of the weights.
void BeginAverage(Session& session) {
  if (session.spec.ema.decay == 0) return;
  session.average = std::make_unique<WeightAverage>(StateDict(*session.model), session.spec.ema.decay);
}

Status MakeLearner(Session& session) {
  const auto& spec = session.spec;
  torch::manual_seed(spec.seed);
  const ModelShape shape{.classes = static_cast<int>(session.train->classes().size()),
                         .image_size = session.phases.all().back().image_size};
  IMGD_ASSIGN(session.model, MakeModel(spec.model, shape));
  IMGD_TRY(Freeze(session));
  session.model->to(session.device);
  session.optimizer = MakeOptimizer(Parameters(*session.model), spec.optimizer, session.model.get());
  if (spec.train.sync_batch_norm && session.env.world_size > 1) {
    session.norm_sum = std::make_shared<SumOverRanks>();
    session.norm_sum->sum = [gang = session.gang.get()](at::Tensor& sums) { gang->AllReduceSum(sums); };
    SynchronizeBatchNorm(*session.model, session.norm_sum);
  }
  BeginAverage(session);
  session.schedule = Schedule(spec, session.phases);
  return {};
}

/// A run that goes on from a checkpoint has its weights from there.
Status InitWeights(Session& session) {
  if (session.spec.model.init_from.empty() || !session.resumed_from.empty()) return {};
  IMGD_ASSIGN(const auto done, InitFrom(*session.model, session.spec, NewHead::kAllowed));
  if (session.is_rank0()) session.reporter.Note(done);
  BeginAverage(session);
  return {};
}

/// Threads that are started from here on keep to the cores and the memory beside the rank's GPU. Returns how
/// many cores there are; nothing where it is not bound.
std::optional<int> BindBesideGpu(const Session& session) {
  return BindBeside("/sys", PciAddressOf(session.device), session.spec.train.bind_numa,
                    [&](const std::string& text) {
                      session.reporter.Note(fmt::format("rank {}: {}", session.env.rank, text));
                    });
}

/// What this rank computes on, with how many threads, and in which precision.
Status SetUpCompute(Session& session) {
  const auto& spec = session.spec;
  int share = ShareOfCores(session.env);
  IMGD_ASSIGN(session.device, ChooseDevice(spec.train.device, session.env.local_rank));
  if (const auto cores = BindBesideGpu(session)) share = std::min(share, *cores);
  session.workers = spec.data.workers > 0 ? spec.data.workers : share;
  SetUpDevice(session.device, spec.train.threads > 0 ? spec.train.threads : share, spec.train.precision);
  const ComputeType compute = ChooseComputeType(spec.train.precision, session.device);
  session.compute_type = compute.type;
  if (!compute.note.empty()) session.reporter.Note(compute.note);
  return {};
}

/// Validation is decoded on the CPU whatever the setting, so that its results don't depend on it.
Status SetUpDecoder(Session& session) {
  if (session.spec.data.decoder != "nvjpeg") return {};
  if (!session.device.is_cuda()) {
    return Fail(ErrorCode::kFailedPrecondition,
                "data.decoder: nvjpeg needs a GPU, but this rank computes on the CPU; set data.decoder: cpu");
  }
  NvjpegLibraries libraries;
  if (!session.env.nvjpeg_library.empty()) libraries.nvjpeg = session.env.nvjpeg_library;
  if (!session.env.cudart_library.empty()) libraries.cudart = session.env.cudart_library;
  auto loaded = Nvjpeg::Load(libraries, session.device.index());
  if (!loaded) return Fail(loaded.error().code, "data.decoder: nvjpeg: {}", loaded.error().message);
  session.nvjpeg = std::move(*loaded);
  return {};
}

RunState FreshState(const Session& session) {
  RunState state;
  state.seed = session.spec.seed;
  state.model = session.spec.model.name;
  state.class_names = session.train->classes();
  state.optimizer = session.spec.optimizer.kind;
  state.job_digest = JobDigest(session.spec);
  state.loss_scale = session.spec.train.precision == "fp16" ? LossScale::kInitial : 0;
  return state;
}

/// What training and validation have in common.
data::LoaderOptions CommonOptions(const Session& session) {
  const auto& spec = session.spec;
  return {.seed = spec.seed,
          .rank = session.env.rank,
          .world_size = session.env.world_size,
          .workers = session.workers,
          .prefetch = spec.data.prefetch,
          .max_memory_bytes = static_cast<uint64_t>(spec.data.memory_mib) << 20,
          .max_bad_images = spec.data.max_bad_images};
}

data::DecodeMode DecodeModeOf(const std::string& name) {
  return name == "exact" ? data::DecodeMode::kExact : data::DecodeMode::kFast;
}

data::AugmentOptions AugmentOf(const JobSpec& spec) {
  const auto& augment = spec.augment;
  data::AugmentOptions options{.erasing = augment.erasing};
  options.policy = {.ops = augment.ops, .magnitude = augment.magnitude};
  if (augment.policy == "randaugment") options.policy.kind = data::Policy::kRandAugment;
  if (augment.policy == "trivialaugment") options.policy.kind = data::Policy::kTrivialAugment;
  if (augment.interpolation == "bilinear") options.policy.sampling = data::ImageOps::Sampling::kBilinear;
  return options;
}

NcclLog BeginNccl(const Session& session) {
  if (!session.device.is_cuda()) return {};
  const char* libraries = std::getenv("LD_LIBRARY_PATH");
  auto log =
      NcclLog::Begin(session.spec.dist, session.env, FindFabric("/", libraries == nullptr ? "" : libraries));
  if (session.is_rank0() && !log.note().empty()) session.reporter.Note(log.note());
  return log;
}

/// A rank without a pulse trains all the same; it is only not looked after.
void StartPulse(Session& session) {
  session.pulse = std::make_unique<Pulse>(session.spec.limits);
  if (session.env.run_dir.empty()) return;
  const auto written = session.pulse->WriteTo(session.env.run_dir, session.env.local_rank);
  if (!written) session.reporter.Note(written.error().ToString());
}

/// Two nodes that do not reach each other are known now, and not after the model was made.
void TryNetwork(Session& session) {
  constexpr auto kLimit = std::chrono::seconds(60);
  const auto& env = session.env;
  session.gang->SetPosition(0, "trial all-reduce");
  const auto trial =
      session.gang->TryAllReduce(session.device, env.world_size / std::max(env.local_world_size, 1), kLimit);
  if (session.is_rank0()) session.trial = trial;
}

}  // namespace

double Session::LearningRate(uint64_t step) const {
  const double scale = static_cast<double>(phases.At(step).ranks) / spec.elastic.ranks;
  return scale * schedule.LearningRate(phases.PlannedSteps(step));
}

const data::Dataset& Session::TrainSet(const Phase& phase) const {
  return resized[phase.number] ? *resized[phase.number] : *train;
}

data::LoaderOptions Session::TrainOptions(const Phase& phase) {
  data::LoaderOptions options = CommonOptions(*this);
  options.crop_size = phase.image_size;
  options.min_scale = phase.min_scale;
  options.flip = spec.data.flip;
  options.decode = DecodeModeOf(spec.data.decode);
  if (nvjpeg) options.decoder = [gpu = nvjpeg] { return MakeNvjpegDecoder(gpu); };
  options.augment = AugmentOf(spec);
  options.partners = mix().on();
  options.epoch_mode =
      spec.data.epoch_mode == "resampled" ? data::EpochMode::kResampled : data::EpochMode::kExact;
  options.global_batch = phase.global_batch;
  options.segments = spec.data.segments;
  options.first_epoch = phase.first_epoch;
  options.first_step = phase.first_step;
  options.start_step = state.step;
  options.end_step = std::min(phase.end_step, total_steps);
  options.on_bad_image = [this](const std::string& name, const std::string& error, uint64_t) {
    OnBadImage(bad_train_images, name, error);
  };
  return options;
}

data::LoaderOptions Session::ValOptions() {
  data::LoaderOptions options = CommonOptions(*this);
  options.training = false;
  options.crop_size = spec.data.val_size;
  options.resize = spec.data.val_resize;
  options.decode = DecodeModeOf(spec.data.val_decode);
  options.global_batch = spec.train.global_batch;
  options.on_bad_image = [this](const std::string& name, const std::string& error, uint64_t) {
    OnBadImage(bad_val_images, name, error);
  };
  options.shapes = val_shapes;
  return options;
}

/// Each phase and each validation pass has a loader of its own; an image is named once all the same.
void Session::OnBadImage(std::set<std::string>& named, const std::string& name, const std::string& error) {
  if (named.insert(name).second) reporter.On(report::BadImage{name, error, named.size()});
}

Status SetUp(Session& session) {
  const auto& spec = session.spec;
  const auto& env = session.env;
  StartPulse(session);
  session.pulse->SetPosition(0, "opening the data");
  IMGD_TRY(OpenAllData(session));
  session.pulse->SetPosition(0, "setting up the device");
  IMGD_TRY(SetUpCompute(session));
  IMGD_TRY(SetUpDecoder(session));
  if (session.is_rank0()) IMGD_TRY(SetUpSaving(session));
  const auto nccl = BeginNccl(session);
  session.pulse->SetPosition(0, "joining the gang");
  IMGD_ASSIGN(session.gang, Gang::Join(env, session.device, *session.pulse));
  session.whereabouts.Set([gang = session.gang.get()] { return gang->LateRanks(); });
  TryNetwork(session);
  IMGD_TRY(CheckThatAllSeeTheSame(session));
  session.gang->SetPosition(0, "making the model");
  IMGD_TRY(MakeLearner(session));
  session.state = FreshState(session);
  IMGD_TRY(Resume(session));
  PlanSteps(session);
  IMGD_TRY(InitWeights(session));
  if (session.saver) session.saver->SetLineage(LineageOf(session));
  session.averager = std::make_unique<GradientAverager>(*session.gang, Parameters(*session.model),
                                                        Buffers(*session.model), spec.dist);
  IMGD_TRY(nccl.Check());
  ShareAverage(session);

  RunState& state = session.state;
  state.world_size = env.world_size;
  state.generation = env.generation;
  state.global_batch = spec.train.global_batch;
  state.train_images = session.train->size();
  state.job_digest = JobDigest(spec);
  BeginLossScale(session);
  return {};
}

void BeginLossScale(Session& session) {
  const RunState& state = session.state;
  if (session.spec.train.precision != "fp16") return;
  const double scale = state.loss_scale > 0 ? state.loss_scale : LossScale::kInitial;
  session.loss_scale = LossScale(session.device, scale, state.loss_scale_streak);
}

Status SetUpEvaluation(Session& session) {
  const auto& spec = session.spec;
  StartPulse(session);
  IMGD_ASSIGN(session.val, OpenData("data.val", spec.data.val));
  IMGD_TRY(SetUpCompute(session));
  IMGD_ASSIGN(session.gang, Gang::Join(session.env, session.device, *session.pulse));
  const ModelShape shape{.classes = static_cast<int>(session.val->classes().size()),
                         .image_size = spec.data.val_size};
  IMGD_ASSIGN(session.model, MakeModel(spec.model, shape));
  IMGD_TRY(InitFrom(*session.model, spec, NewHead::kRefused));
  session.model->to(session.device);
  return {};
}

}  // namespace imgd::trainer
