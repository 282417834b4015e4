#include "trainer/dist/gang.h"

#include <c10/util/Logging.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <stdexcept>
#include <string_view>
#include <thread>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <torch/csrc/distributed/c10d/comm.hpp>
#include <typeinfo>

#include "trainer/cuda/cuda_parts.h"
#include "trainer/dist/position_board.h"
#include "trainer/dist/within.h"
#include "trainer/unanswered.h"

namespace imgd::trainer {
namespace {

using c10d::Store;
using std::chrono::milliseconds;

bool IsLoopback(const std::string& address) {
  return address == "localhost" || address.starts_with("127.") || address == "::1";
}

std::shared_ptr<::gloo::transport::Device> MakeGlooDevice(const Environment& env) {
  using c10d::ProcessGroupGloo;
  if (!env.host_address.empty()) return ProcessGroupGloo::createDeviceForHostname(env.host_address);
  if (!env.gloo_interface.empty()) return ProcessGroupGloo::createDeviceForInterface(env.gloo_interface);
  if (IsLoopback(env.master_address)) return ProcessGroupGloo::createDeviceForHostname("127.0.0.1");
  return ProcessGroupGloo::createDefaultDevice();
}

/// A connection to the store at rank 0, seen through the generation's prefix: a rank of an older start never
/// finds these keys. The first one of rank 0 serves it.
c10::intrusive_ptr<Store> ConnectStore(const Environment& env, bool serves) {
  c10d::TCPStoreOptions options;
  options.port = env.master_port;
  options.isServer = serves;
  options.waitWorkers = false;
  options.timeout = env.join_timeout;
  if (options.isServer && env.master_fd) options.masterListenFd = *env.master_fd;
  auto store = c10::make_intrusive<c10d::TCPStore>(env.master_address, options);
  const std::string prefix = env.attempt.empty() ? fmt::format("g{}", env.generation)
                                                 : fmt::format("g{}/try{}", env.generation, env.attempt);
  return c10::make_intrusive<c10d::PrefixStore>(prefix, store);
}

std::string HostName() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "an unknown host";
}

/// Waits until every rank has left its mark in the store.
Status WaitForAll(Store& store, const Environment& env) {
  const auto key = [](int rank) { return fmt::format("joined/{}", rank); };
  store.set(key(env.rank), std::vector<uint8_t>{1});
  std::vector<std::string> keys;
  for (int rank = 0; rank < env.world_size; ++rank) keys.push_back(key(rank));
  try {
    store.wait(keys, env.join_timeout);
    return {};
  } catch (const std::exception&) {
    std::vector<int> missing;
    for (int rank = 0; rank < env.world_size; ++rank) {
      if (!store.check({key(rank)})) missing.push_back(rank);
    }
    return Fail(ErrorCode::kDeadlineExceeded,
                "rank {} on {}: joining the gang: of {} ranks, {} did not come to {}:{} within {} s",
                env.rank, HostName(), env.world_size, fmt::join(missing, ", "), env.master_address,
                env.master_port, env.join_timeout.count());
  }
}

std::string ConnectedKey(int rank) { return fmt::format("nccl-connects/{}", rank); }

/// NCCL waits without an end for a rank that does not come, or that no packet reaches. Throws where it takes
/// longer than ranks have to meet.
c10::intrusive_ptr<c10d::Backend> JoinNccl(const c10::intrusive_ptr<Store>& store, const Environment& env,
                                           const at::Device& device) {
  using Nccl = c10::intrusive_ptr<c10d::Backend>;
  store->set(ConnectedKey(env.rank), std::vector<uint8_t>{1});
  // A connection of its own: the other one is asked for the late ranks.
  const auto own = ConnectStore(env, false);
  auto nccl = Within<Nccl>(env.join_timeout, [own, env, device]() -> Nccl {
    LoadedCudaParts().Use(device);
    return LoadedCudaParts().JoinNccl(own, env.rank, env.world_size, env.collective_timeout, device);
  });
  if (nccl) return *nccl;
  std::vector<int> missing;
  for (int rank = 0; rank < env.world_size; ++rank) {
    if (!store->check({ConnectedKey(rank)})) missing.push_back(rank);
  }
  throw std::runtime_error(fmt::format(
      "NCCL has not connected the ranks within {} s: {}", env.join_timeout.count(),
      missing.empty()
          ? std::string("all of them have begun to; NCCL_DEBUG=INFO in dist.nccl says what it waits for")
          : fmt::format("rank {} has not begun to", fmt::join(missing, ", "))));
}

c10::intrusive_ptr<c10d::ProcessGroup> MakeGroup(const c10::intrusive_ptr<Store>& store,
                                                 const Environment& env, const at::Device& device) {
  using Type = c10d::ProcessGroup::BackendType;
  auto group = c10::make_intrusive<c10d::ProcessGroup>(store, env.rank, env.world_size);
  auto options = c10d::ProcessGroupGloo::Options::create(env.collective_timeout);
  options->devices.push_back(MakeGlooDevice(env));
  c10::intrusive_ptr<c10d::Backend> gloo = c10::make_intrusive<c10d::ProcessGroupGloo>(
      c10::make_intrusive<c10d::PrefixStore>("gloo", store), env.rank, env.world_size, options);
  group->setBackend(at::kCPU, Type::GLOO, gloo);
  group->setDefaultBackend(Type::GLOO);
  if (device.is_cuda()) {
    group->setBackend(at::kCUDA, Type::NCCL, JoinNccl(store, env, device));
    group->setDefaultBackend(Type::NCCL);
  }
  return group;
}

/// Collectives that this rank has begun, of both process groups: all ranks begin them in the same order.
uint64_t CollectivesBegun(c10d::ProcessGroup& group, const at::Device& device) {
  uint64_t count = group.getBackend(at::kCPU)->getSequenceNumberForGroup();
  if (device.is_cuda()) count += group.getBackend(at::kCUDA)->getSequenceNumberForGroup();
  return count;
}

/// The first line of them, without source file and good wishes: "[/x/pair.cc:537]
/// Connection closed by peer [127.0.0.1]:41234. This means that ..." ends after the address.
std::string PlainWords(const std::exception& e) {
  std::string text = WordsOf(e);
  text = text.substr(0, text.find('\n'));
  if (text.starts_with("[/")) text.erase(0, text.find("] ") + 2);
  return text.substr(0, std::min(text.find(". This means"), text.find(" GLHF")));
}

/// LibTorch's own log shows C++ stacks for what comes back as an error too, and is said in our words then.
void QuietLibTorch() {
  if (::setenv("TORCH_CPP_LOG_LEVEL", "FATAL", /*overwrite=*/0) == 0) c10::initLogging();
}

bool IsPortInUse(const std::string& words) { return words.find("EADDRINUSE") != std::string::npos; }

/// As Work::wait(), which of NCCL's work makes only the stream wait, and with a limit of its own. False: it
/// has not ended by then.
bool WaitUntil(c10d::Work& work, std::chrono::steady_clock::time_point deadline) {
  while (!work.isCompleted()) {
    if (std::chrono::steady_clock::now() >= deadline) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  work.wait();  // throws what it ended with
  return true;
}

bool MentionsTimeout(const std::string& text) {
  return text.find("imed out") != std::string::npos || text.find("imeout") != std::string::npos;
}

}  // namespace

std::string WordsOf(const std::exception& e) {
  const auto* error = dynamic_cast<const c10::Error*>(&e);
  return error != nullptr ? error->what_without_backtrace() : e.what();
}

bool IsCollectiveFailure(const std::exception& e) {
  if (dynamic_cast<const c10::DistError*>(&e) != nullptr) return true;
  // Gloo's exceptions are not exported by LibTorch, but know their namespace.
  if (std::string_view(typeid(e).name()).find("gloo") != std::string_view::npos) return true;
  // What passed through LibTorch on its way has only its words left.
  const std::string text = e.what();
  for (const char* sign :
       {"gloo", "Connection closed by peer", "Connection reset", "NCCL", "ncclUnhandled"}) {
    if (text.find(sign) != std::string::npos) return true;
  }
  return false;
}

struct Gang::Parts {
  c10::intrusive_ptr<c10d::ProcessGroup> group;
  std::unique_ptr<PositionBoard> board;
};

Gang::Gang(int rank, int world_size, Pulse& pulse) : rank_(rank), world_size_(world_size), pulse_(pulse) {}
Gang::~Gang() = default;

Result<std::unique_ptr<Gang>> Gang::Join(const Environment& env, const at::Device& device, Pulse& pulse) {
  std::unique_ptr<Gang> gang(new Gang(env.rank, env.world_size, pulse));
  if (env.world_size == 1) return gang;
  QuietLibTorch();
  const char* phase = "connecting to rank 0's store";
  try {
    const bool serves = env.rank == 0 && !env.store_is_elsewhere;
    if (!serves) pulse.SetConnecting(env.master_address);
    auto store = ConnectStore(env, serves);
    pulse.SetConnecting("");
    // To meet counts as the first collective: whoever does not come to the store is behind those that did.
    pulse.CountCollectivesBy([] { return uint64_t{1}; });
    pulse.SetPosition(0, "meeting the other ranks");
    IMGD_TRY(WaitForAll(*store, env));
    phase = device.is_cuda() ? "making the communicators of Gloo and NCCL" : "making Gloo's communicator";
    pulse.SetPosition(0, phase);
    gang->parts_ = std::make_unique<Parts>();
    gang->parts_->group = MakeGroup(store, env, device);
    gang->parts_->board = std::make_unique<PositionBoard>(ConnectStore(env, false), env.rank, env.world_size,
                                                          HostName(), pulse);
    pulse.CountCollectivesBy(
        [group = gang->parts_->group, device] { return 1 + CollectivesBegun(*group, device); });
  } catch (const std::exception& e) {
    if (IsPortInUse(e.what())) {
      return Fail(
          ErrorCode::kInvalidArgument,
          "rank {}: MASTER_PORT is {}, where another program listens on this machine; take a free port",
          env.rank, env.master_port);
    }
    return Fail(ErrorCode::kUnavailable, "rank {} on {}: cannot join the gang at {}:{}, {}: {}", env.rank,
                HostName(), env.master_address, env.master_port, phase, PlainWords(e));
  }
  return gang;
}

void Gang::ThrowBroken(const std::exception& e) {
  const std::string what = PlainWords(e);
  std::string words =
      fmt::format("rank {}: a collective broke at {}: {}", rank_, parts_->board->Here(), what);
  if (MentionsTimeout(what)) {
    if (const std::string late = LateRanks(); !late.empty()) words += "; " + late;
    if (const std::string peer = UnansweredPeer(); !peer.empty()) words += "; no answer from " + peer;
  }
  throw CollectiveError(words);
}

std::string Gang::LateRanks() const { return parts_ ? parts_->board->Laggards() : ""; }

void Gang::SetPosition(uint64_t step, const char* what) { pulse_.SetPosition(step, what); }

std::optional<report::Trial> Gang::TryAllReduce(const at::Device& device, int nodes, milliseconds limit) {
  if (!parts_) return std::nullopt;
  using Clock = std::chrono::steady_clock;
  constexpr int64_t kValues = 4 << 20;
  constexpr int kTimed = 3;  // after one that only warms up
  torch::NoGradGuard no_grad;
  return Guard([&]() -> std::optional<report::Trial> {
    report::Trial trial{.bytes = kValues * sizeof(float), .ranks = world_size_, .nodes = nodes};
    const auto deadline = Clock::now() + limit;
    std::vector<at::Tensor> tensors = {at::empty({kValues}, at::TensorOptions(at::kFloat).device(device))};
    at::Tensor& ones = tensors.front();
    for (int round = 0; round <= kTimed; ++round) {
      ones.fill_(1);
      (void)ones[0].item<float>();  // until then a GPU may be busy with something else
      const auto begun = Clock::now();
      if (!WaitUntil(*parts_->group->allreduce(tensors), deadline))
        ThrowBroken(std::runtime_error(fmt::format("the trial timed out after {} ms", limit.count())));
      const double seconds = std::chrono::duration<double>(Clock::now() - begun).count();
      if (round == 1 || (round > 1 && seconds < trial.seconds)) trial.seconds = seconds;
    }
    if (!ones.eq(world_size_).all().item<bool>())
      ThrowBroken(std::runtime_error(fmt::format("ones of {} ranks add up to something else", world_size_)));
    return trial;
  });
}

void Gang::AllReduceSum(at::Tensor& tensor) {
  if (!parts_) return;
  Guard([&] {
    std::vector<at::Tensor> tensors = {tensor};
    parts_->group->allreduce(tensors)->wait();
  });
}

void Gang::BroadcastFromRank0(const std::vector<at::Tensor>& tensors) {
  if (!parts_ || tensors.empty()) return;
  constexpr size_t kChunkBytes = size_t{250} << 20;
  torch::NoGradGuard no_grad;
  Guard([&] { c10d::broadcast_coalesced(parts_->group, tensors, kChunkBytes, 0); });
}

std::string Gang::BroadcastFromRank0(const std::string& bytes) {
  if (!parts_) return bytes;
  return Guard([&] {
    auto size = at::full({1}, static_cast<int64_t>(bytes.size()), at::kLong);
    std::vector<at::Tensor> tensors = {size};
    parts_->group->broadcast(tensors)->wait();
    std::string out = bytes;
    out.resize(static_cast<size_t>(size.item<int64_t>()));
    if (out.empty()) return out;
    tensors = {at::from_blob(out.data(), {static_cast<int64_t>(out.size())}, at::kByte)};
    parts_->group->broadcast(tensors)->wait();
    return out;
  });
}

class Gang::PendingSum::Impl {
 public:
  Gang* gang = nullptr;
  at::Tensor values;
  c10::intrusive_ptr<c10d::Work> work;  ///< null with one rank
};

Gang::PendingSum Gang::StartSum(const std::vector<int64_t>& values) {
  PendingSum pending;
  pending.impl_ = std::make_shared<PendingSum::Impl>();
  pending.impl_->gang = this;
  pending.impl_->values = at::tensor(values, at::kLong);
  if (!parts_) return pending;
  Guard([&] {
    std::vector<at::Tensor> tensors = {pending.impl_->values};
    pending.impl_->work = parts_->group->allreduce(tensors);
  });
  return pending;
}

std::vector<int64_t> Gang::PendingSum::Wait() {
  if (impl_->work) impl_->gang->Guard([&] { impl_->work->wait(); });
  const auto* data = impl_->values.const_data_ptr<int64_t>();
  return {data, data + impl_->values.numel()};
}

void Gang::FinalBarrier() noexcept {
  try {
    StartSum({1}).Wait();
  } catch (const std::exception&) {
    // This rank has done all its work; a rank that could not wait here takes nothing from it.
  }
}

c10::intrusive_ptr<c10d::ProcessGroup> Gang::group() const {
  return parts_ ? parts_->group : c10::intrusive_ptr<c10d::ProcessGroup>();
}

}  // namespace imgd::trainer
