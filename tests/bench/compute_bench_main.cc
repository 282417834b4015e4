// How fast training computes, without data: steps of Learner on one batch that lies in memory, as a rank
// under torchrun's environment. Prints one line of JSON: images per second of all ranks.
#include "trainer/torch.h"
//
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "trainer/dist/device.h"
#include "trainer/loop/learner.h"
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
};

JobSpec SpecOf(const Wanted& wanted, const Environment& env) {
  JobSpec spec;
  spec.model.name = wanted.model;
  spec.data.image_size = wanted.size;
  spec.train.global_batch = wanted.rank_batch * env.world_size;
  spec.train.precision = wanted.precision;
  spec.train.cuda_graph = wanted.cuda_graph;
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

}  // namespace
}  // namespace imgd::trainer

int main(int argc, char** argv) {
  using namespace imgd;
  const bool cuda_graph = argc == 8 && std::string_view(argv[7]) == "graph";
  if (argc != 7 && !cuda_graph) {
    std::fprintf(stderr, "usage: compute_bench MODEL SIZE RANK_BATCH STEPS THREADS PRECISION [graph]\n");
    return 2;
  }
  const auto env =
      trainer::ReadEnvironment([](const char* name) -> const char* { return std::getenv(name); });
  if (!env) {
    std::fprintf(stderr, "%s\n", env.error().ToString().c_str());
    return 2;
  }
  const auto rate = trainer::ImagesPerSecond({argv[1], std::atoi(argv[2]), std::atoi(argv[3]),
                                              std::atoi(argv[4]), std::atoi(argv[5]), argv[6], cuda_graph},
                                             *env);
  if (!rate) {
    std::fprintf(stderr, "%s\n", rate.error().ToString().c_str());
    return 1;
  }
  if (env->rank == 0) std::printf("{\"images_per_second\": %.4f}\n", *rate);
  std::fflush(nullptr);
  ::_exit(0);
}
