// How fast training computes, without data: steps of Learner on one batch that lies in memory, as a rank
// under torchrun's environment. Prints one line of JSON: images per second of all ranks. Or what the profiler
// costs a step while nobody asks for it.
#include "trainer/torch.h"
//
#include <ATen/record_function.h>
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "trainer/dist/device.h"
#include "trainer/loop/learner.h"
#include "trainer/loop/profile.h"
#include "trainer/loop/session.h"
#include "trainer/loop/step_clock.h"
#include "trainer/report/reporter.h"

namespace imgd::trainer {
namespace {

constexpr int kClasses = 1000;

struct Wanted {
  std::string model;
  int size = 0;
  int rank_batch = 0;
  int steps = 0;
  int threads = 0;
  std::string precision;
  bool cuda_graph = false;
  int bucket_mb = JobSpec::Dist{}.bucket_mb;
};

JobSpec SpecOf(const Wanted& wanted, const Environment& env) {
  JobSpec spec;
  spec.model.name = wanted.model;
  spec.data.image_size = wanted.size;
  spec.train.global_batch = wanted.rank_batch * env.world_size;
  spec.train.precision = wanted.precision;
  spec.train.cuda_graph = wanted.cuda_graph;
  spec.dist.bucket_mb = wanted.bucket_mb;
  return spec;
}

Status SetUpCompute(Session& session, const Wanted& wanted) {
  const auto& spec = session.spec;
  IMGD_ASSIGN(session.device, ChooseDevice("auto", session.env.local_rank));
  SetUpDevice(session.device, wanted.threads, wanted.precision);
  session.compute_type = ChooseComputeType(wanted.precision, session.device).type;
  session.phases = Phases(spec, static_cast<uint64_t>(spec.train.global_batch) * 1000);
  session.pulse = std::make_unique<Pulse>(spec.limits);
  IMGD_ASSIGN(session.gang, Gang::Join(session.env, session.device, *session.pulse));
  torch::manual_seed(0);
  IMGD_ASSIGN(session.model, MakeModel(spec.model, {.classes = kClasses, .image_size = wanted.size}));
  session.model->to(session.device);
  session.optimizer = MakeOptimizer(Parameters(*session.model), spec.optimizer, session.model.get());
  session.averager = std::make_unique<GradientAverager>(*session.gang, Parameters(*session.model),
                                                        Buffers(*session.model), spec.dist);
  return {};
}

/// A step is done when its sums can be read.
void Step(Learner& learner, Session& session, DeviceBatch& batch, bool wait) {
  auto pending = session.gang->StartSum({batch.count});
  learner.Step(batch, 0.01, [&] { return Learner::Agreement{.images = pending.Wait()[0]}; });
  if (wait) learner.TakeSums();
  session.state.step = ++batch.step;
}

Result<double> ImagesPerSecond(const Wanted& wanted, const Environment& env) {
  const JobSpec spec = SpecOf(wanted, env);
  Commands commands;
  Whereabouts whereabouts;
  report::Tee nobody({});
  // Never taken down, as in a run.
  Session& session = *new Session{spec, env, nobody, commands, whereabouts};
  IMGD_TRY(SetUpCompute(session, wanted));
  StepClock clock(session.device);
  Learner learner(session, clock);
  DeviceBatch batch{.count = wanted.rank_batch};
  batch.images = at::randn({wanted.rank_batch, 3, wanted.size, wanted.size})
                     .contiguous(at::MemoryFormat::ChannelsLast)
                     .to(session.device);
  batch.labels = at::randint(kClasses, {wanted.rank_batch}, at::kLong).to(session.device);
  const int warm_up = std::max(2, wanted.steps / 4);
  for (int i = 0; i < warm_up; ++i) Step(learner, session, batch, i + 1 == warm_up);
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < wanted.steps; ++i) Step(learner, session, batch, i + 1 == wanted.steps);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  session.gang->FinalBarrier();
  return wanted.steps * spec.train.global_batch / took.count();
}

/// A step's calls of the profiler and its marks, without the step.
double SecondsOfHooks(const Environment& env) {
  constexpr int kSteps = 1'000'000;
  const at::Device cpu(at::kCPU);
  StepClock clock(cpu);
  report::Tee nobody({});
  Commands commands;
  StepProfiler profiler(cpu, env, ".", clock, nobody);
  const auto start = std::chrono::steady_clock::now();
  for (uint64_t step = 0; step < kSteps; ++step) {
    profiler.BeforeStep(step, commands);
    { RECORD_USER_SCOPE("imgtrain: input"); }
    { RECORD_USER_SCOPE("imgtrain: forward"); }
    { RECORD_USER_SCOPE("imgtrain: backward and all-reduce"); }
    { RECORD_USER_SCOPE("imgtrain: optimizer"); }
    profiler.AfterStep(/*is_last=*/false);
  }
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / kSteps;
}

/// The arguments after the program's name, but for `hooks`. Nothing where they are not understood.
std::optional<Wanted> Read(int argc, char** argv) {
  if (argc < 7) return std::nullopt;
  Wanted wanted{argv[1], std::atoi(argv[2]), std::atoi(argv[3]), std::atoi(argv[4]), std::atoi(argv[5]),
                argv[6]};
  for (int i = 7; i < argc; ++i) {
    const std::string_view word = argv[i];
    constexpr std::string_view kBuckets = "buckets=";
    if (word == "graph") {
      wanted.cuda_graph = true;
    } else if (word.starts_with(kBuckets)) {
      wanted.bucket_mb = std::atoi(argv[i] + kBuckets.size());
    } else {
      return std::nullopt;
    }
  }
  return wanted;
}

}  // namespace
}  // namespace imgd::trainer

int main(int argc, char** argv) {
  using namespace imgd;
  const bool hooks = argc == 2 && std::string_view(argv[1]) == "hooks";
  const auto wanted = trainer::Read(argc, argv);
  if (!wanted && !hooks) {
    std::fprintf(stderr,
                 "usage: compute_bench MODEL SIZE RANK_BATCH STEPS THREADS PRECISION [graph] [buckets=MIB]\n"
                 "       compute_bench hooks\n");
    return 2;
  }
  const auto env =
      trainer::ReadEnvironment([](const char* name) -> const char* { return std::getenv(name); });
  if (!env) {
    std::fprintf(stderr, "%s\n", env.error().ToString().c_str());
    return 2;
  }
  if (hooks) {
    std::printf("{\"seconds_per_step\": %.4g}\n", trainer::SecondsOfHooks(*env));
    return 0;
  }
  const auto rate = trainer::ImagesPerSecond(*wanted, *env);
  if (!rate) {
    std::fprintf(stderr, "%s\n", rate.error().ToString().c_str());
    return 1;
  }
  if (env->rank == 0) std::printf("{\"images_per_second\": %.4f}\n", *rate);
  std::fflush(nullptr);
  ::_exit(0);
}
