#include "trainer/dist/ddp.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/version.h>

#include <algorithm>
#include <torch/csrc/distributed/c10d/reducer.hpp>

namespace imgd::trainer {
namespace {

/// Those that are learnt.
NamedTensors Learnt(const NamedTensors& parameters) {
  NamedTensors out;
  for (const auto& entry : parameters) {
    if (entry.second.requires_grad()) out.push_back(entry);
  }
  return out;
}

std::vector<at::Tensor> TensorsOf(const NamedTensors& named) {
  std::vector<at::Tensor> out;
  for (const auto& [name, tensor] : named) out.push_back(tensor);
  return out;
}

/// The Reducer times itself, but shows that to its subclasses only.
class TimedReducer final : public c10d::Reducer {
 public:
  using Reducer::Reducer;

  GradientAverager::AllReduceTimes Times() const {
    using Event = c10d::Timer::Event;
    const auto seconds = [&](Event end) {
      const auto ns = timer_ ? timer_->measureDifference(Event::kBackwardCommStart, end) : std::nullopt;
      return std::max(static_cast<double>(ns.value_or(0)) / 1e9, 0.0);
    };
    const double all = seconds(Event::kBackwardCommEnd);
    return {all, std::min(seconds(Event::kBackwardComputeEnd), all)};
  }
};

/// The constructor is internal to LibTorch and changes between releases; this is the one place that knows it.
/// 2.11 to 2.13 take the longer call (2.13 has one more argument, with a default), 2.7 the shorter.
std::unique_ptr<TimedReducer> MakeReducer(const c10::intrusive_ptr<c10d::ProcessGroup>& group,
                                          const NamedTensors& parameters, int64_t bucket_bytes) {
  const auto tensors = TensorsOf(parameters);
  std::unordered_map<size_t, std::string> names;
  for (size_t i = 0; i < parameters.size(); ++i) names[i] = parameters[i].first;
  const std::vector<bool> sparse(tensors.size(), false);
  // A small bucket first, so that reducing starts early in the backward pass; gradients come in reverse
  // order.
  auto [buckets, limits] = c10d::compute_bucket_assignment_by_size(
      tensors,
      {std::min<size_t>(c10d::kDefaultFirstBucketBytes, static_cast<size_t>(bucket_bytes)),
       static_cast<size_t>(bucket_bytes)},
      sparse);
  std::reverse(buckets.begin(), buckets.end());
  auto reducer =
      std::make_unique<TimedReducer>(tensors, std::move(buckets), group, sparse, bucket_bytes,
                                     /*find_unused_parameters=*/false, /*gradient_as_bucket_view=*/true,
                                     std::move(names), c10d::kDefaultFirstBucketBytes
#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 11
                                     ,
                                     /*skip_all_reduce_unused_params=*/false, /*use_python_reducer=*/false,
                                     /*bucket_bytes_cap_list=*/std::vector<int64_t>{}
#endif
      );
  reducer->set_ddp_runtime_logging_sample_rate(1);  // else it times its first steps only
  return reducer;
}

/// Sends gradients as bf16, half as many bytes, and averages them in it. What is rounded away is not kept.
class Bf16Hook final : public c10d::CppCommHookInterface<c10::intrusive_ptr<c10d::ProcessGroup>> {
 public:
  using CppCommHookInterface::CppCommHookInterface;

  c10::intrusive_ptr<c10::ivalue::Future> runHook(c10d::GradBucket& bucket) override {
    at::Tensor gradients = bucket.getBufferRef();
    std::vector<at::Tensor> sent = {gradients.div(state_->getSize()).to(at::kBFloat16)};
    const auto summed = state_->allreduce(sent)->getFuture();
    const auto widen = [gradients](c10::ivalue::Future& done) {
      gradients.copy_(done.value().toTensorVector().front());
      return c10::IValue(gradients);
    };
    return summed->then(widen, summed->elementType());
  }
};

}  // namespace

int BucketMebibytes(const JobSpec::Dist& dist, const at::Device& device) {
  if (dist.bucket_mb > 0) return dist.bucket_mb;
  return device.is_cuda() ? 25 : 4;
}

class GradientAverager::Engine {
 public:
  explicit Engine(std::unique_ptr<TimedReducer> made) : reducer(std::move(made)) {}
  std::unique_ptr<TimedReducer> reducer;
};

GradientAverager::GradientAverager(Gang& gang, const NamedTensors& parameters, const NamedTensors& buffers,
                                   const JobSpec::Dist& dist)
    : gang_(gang) {
  if (gang.world_size() == 1) return;
  gang_.SetPosition(0, "comparing parameters");
  gang_.Guard(
      [&] { c10d::verify_params_across_processes(gang_.group(), TensorsOf(parameters), std::nullopt); });
  gang_.SetPosition(0, "broadcast of parameters");
  gang_.BroadcastFromRank0(TensorsOf(parameters));
  gang_.BroadcastFromRank0(TensorsOf(buffers));
  const int64_t mebibytes = BucketMebibytes(dist, parameters.front().second.device());
  auto reducer = MakeReducer(gang_.group(), Learnt(parameters), mebibytes << 20);
  if (dist.gradient_compression == "bf16") {
    reducer->register_comm_hook(std::make_unique<Bf16Hook>(gang_.group()));
  }
  engine_ = std::make_unique<Engine>(std::move(reducer));
}

GradientAverager::~GradientAverager() = default;

void GradientAverager::BeforeForward() {
  if (!engine_) return;
  gang_.Guard([&] {
    // Once, after the first step, in the order in which the gradients really came.
    engine_->reducer->rebuild_buckets();
    engine_->reducer->prepare_for_forward();
  });
}

void GradientAverager::BeforeBackward(const at::Tensor& loss, std::function<void()> on_own_done) {
  if (!engine_) return;
  engine_->reducer->prepare_for_backward({loss});
  // The loss comes first in the backward pass, so that this callback is queued before the Reducer's, which
  // waits for the other ranks; callbacks run in their order when all gradients are there.
  loss.register_hook([on_own_done = std::move(on_own_done)](const at::Tensor&) {
    torch::autograd::Engine::get_default_engine().queue_callback(on_own_done);
  });
}

GradientAverager::AllReduceTimes GradientAverager::LastAllReduce() const {
  return engine_ ? engine_->reducer->Times() : AllReduceTimes{};
}

}  // namespace imgd::trainer
