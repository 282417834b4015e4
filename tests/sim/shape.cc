#include "tests/sim/shape.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace imgd::sim {

using std::chrono::minutes;
using std::chrono::seconds;

namespace {

constexpr std::array<const char*, 3> kUsers = {"ada", "bob", "cyn"};
constexpr std::array<const char*, 3> kProjects = {"", "vision", "speech"};

int64_t MillisecondsOf(Duration time) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(time).count();
}

void Small(Dice&, const Shape&, JobTruth& job) {
  job.submission.nodes = 1;
  job.submission.ranks_per_node = 1;
}

void Gang(Dice& dice, const Shape& shape, JobTruth& job) {
  job.submission.nodes = static_cast<uint32_t>(1 + dice.Below(std::min(shape.nodes, 16U)));
  job.submission.ranks_per_node = static_cast<uint32_t>(1 + dice.Below(shape.most_devices));
}

void Limited(Dice& dice, const Shape& shape, JobTruth& job) {
  Gang(dice, shape, job);
  job.submission.nodes = std::min(job.submission.nodes, 2U);
  job.submission.time_limit_ms = MillisecondsOf(job.work * 2 + minutes(2));
}

void Overlong(Dice& dice, const Shape& shape, JobTruth& job) {
  Limited(dice, shape, job);
  job.submission.time_limit_ms = MillisecondsOf(job.work / 2 + seconds(20));
}

void Crashing(Dice& dice, const Shape& shape, JobTruth& job) {
  Gang(dice, shape, job);
  job.submission.nodes = std::min(job.submission.nodes, 2U);
  job.fails = 0.8;
}

/// A bug: it crashes at the same step each time.
void SamePlace(Dice& dice, const Shape& shape, JobTruth& job) {
  Gang(dice, shape, job);
  job.submission.nodes = std::min(job.submission.nodes, 2U);
  job.submission.max_restarts = 1000;
  job.crashes_at = dice.Between(seconds(2), job.work);
}

void BadInput(Dice&, const Shape&, JobTruth& job) { job.bad_input = true; }

void InBucket(Dice& dice, const Shape& shape, JobTruth& job) {
  Gang(dice, shape, job);
  job.submission.checkpoint_parent = "s3://bucket/runs";
}

void After(Dice& dice, const Shape& shape, JobTruth& job) {
  Gang(dice, shape, job);
  job.comes_after = true;
}

void NotBefore(Dice& dice, const Shape& shape, JobTruth& job) {
  Gang(dice, shape, job);
  job.not_before = dice.Between(seconds(1), minutes(10));
  job.comes_after = dice.Chance(0.3);
}

void Sweep(Dice& dice, const Shape&, JobTruth& job) {
  job.members = static_cast<uint32_t>(2 + dice.Below(6));
  job.max_running = static_cast<uint32_t>(dice.Below(4));
  job.comes_after = dice.Chance(0.3);
  if (dice.Chance(0.6)) job.halving = Halving{.factor = 2, .rungs = {1, 2, 3}};
}

/// Not every node does for it.
void Picky(Dice& dice, const Shape& shape, JobTruth& job) {
  Gang(dice, shape, job);
  job.submission.nodes = std::min(job.submission.nodes, 2U);
  if (!shape.kinds_of_nodes) return;
  Needs& needs = job.submission.needs;
  if (dice.Chance(0.3)) needs.models = {"H100"};
  if (dice.Chance(0.1)) needs.models.emplace_back("a100");
  if (dice.Chance(0.2)) needs.gpu = true;
  if (dice.Chance(0.2)) needs.memory_bytes = uint64_t{40 + 40 * dice.Below(2)} << 30;
  if (dice.Chance(0.3)) needs.labels["zone"] = {dice.Chance(0.5) ? "a" : "b"};
  if (dice.Chance(0.3)) needs.not_labels["capacity"] = {"spot"};
  if (dice.Chance(0.1)) needs.labels["capacity"] = {"spot"};
  if (dice.Chance(0.2)) needs = {.cpu = true};
}

/// Nobody else on its nodes.
void WholeNodes(Dice& dice, const Shape& shape, JobTruth& job) {
  Picky(dice, shape, job);
  job.submission.needs.whole_nodes = true;
}

/// Takes what there is, and more when nobody else waits. Its owner has no other jobs: while it grows it has
/// devices that the ledger does not count.
void Elastic(Dice& dice, const Shape& shape, JobTruth& job) {
  job.submission.owner = kElasticOwner;
  job.submission.project.clear();
  job.submission.nodes = static_cast<uint32_t>(1 + dice.Below(std::min(shape.nodes, 3U)));
  job.submission.max_nodes =
      job.submission.nodes +
      static_cast<uint32_t>(1 + dice.Below(shape.elastic > 0 ? 2 : std::min(shape.nodes, 8U)));
  job.submission.ranks_per_node = static_cast<uint32_t>(1 + dice.Below(std::min(shape.most_devices, 2U)));
  job.submission.resize_interval_ms = MillisecondsOf(dice.Between(seconds(20), minutes(3)));
  if (dice.Chance(0.2)) job.submission.time_limit_ms = MillisecondsOf(job.work * 2 + minutes(4));
}

/// A program that says nothing of itself, and keeps for itself how far it got.
void Command(Dice& dice, const Shape& shape, JobTruth& job) {
  if (dice.Chance(0.2)) {
    Elastic(dice, shape, job);
  } else {
    Gang(dice, shape, job);
  }
  if (dice.Chance(0.2)) job.submission.time_limit_ms = MillisecondsOf(job.work * 2 + minutes(4));
  job.submission.kind = dice.Chance(0.8) ? imgd::JobKind::kCommand : imgd::JobKind::kConversion;
  job.submission.per_node = dice.Chance(0.4);
}

constexpr JobKind kElastic = {"elastic", 16, Elastic};

}  // namespace

double ValidationOf(const JobTruth& job, uint32_t epoch) {
  const double value = job.quality * (1 + 7.13 * epoch);
  return value - static_cast<double>(static_cast<uint64_t>(value));
}

const std::vector<JobKind>& KindsOfJobs() {
  static const std::vector<JobKind> kinds = {
      {"small", 20, Small},       {"gang", 30, Gang},           {"limited", 20, Limited},
      {"overlong", 6, Overlong},  {"crashing", 10, Crashing},   {"bad-input", 3, BadInput},
      {"in-bucket", 8, InBucket}, {"after", 14, After},         {"not-before", 5, NotBefore},
      {"sweep", 6, Sweep},        {"same-place", 5, SamePlace}, kElastic,
      {"command", 16, Command},   {"picky", 14, Picky},         {"whole-nodes", 6, WholeNodes},
  };
  return kinds;
}

namespace {

/// Most are small and make room for the few others, which are soon over.
void MakeUrgentOrNot(Dice& dice, const Shape& shape, JobTruth& job) {
  job.submission.priority = dice.Chance(shape.urgent) ? 1 : 0;
  job.submission.preemptible = true;
  job.submission.nodes = std::min(job.submission.nodes, job.submission.priority == 0 ? 2U : 3U);
  job.submission.max_nodes = 0;
  if (job.submission.priority > 0) job.work = std::min<Duration>(job.work, minutes(2));
}

const JobKind* DrawKind(Dice& dice, const Shape& shape) {
  if (shape.elastic > 0 && dice.Chance(shape.elastic)) return &kElastic;
  uint64_t sum = 0;
  for (const auto& kind : KindsOfJobs()) sum += kind.weight;
  uint64_t drawn = dice.Below(sum);
  const JobKind* kind = KindsOfJobs().data();
  while (drawn >= kind->weight) drawn -= (kind++)->weight;
  return kind;
}

}  // namespace

JobTruth DrawJob(Dice& dice, const Shape& shape, uint64_t number) {
  const JobKind* const kind = DrawKind(dice, shape);
  JobTruth job{.work = dice.Between(seconds(5), shape.longest_work),
               .checkpoint_every = dice.Between(seconds(20), minutes(5)),
               .fails = shape.rank_faults,
               .quality = static_cast<double>(dice.Below(1'000'000)) / 1e6};
  job.submission = {.name = fmt::format("{}-{}", kind->name, number),
                    .owner = "sim",
                    .priority = static_cast<int>(dice.Below(3)),
                    .max_restarts = static_cast<uint32_t>(dice.Below(8)),
                    .preemptible = dice.Chance(0.8),
                    .checkpoint_parent = "/ckpt"};
  if (shape.users > 1) {
    job.submission.owner = kUsers[dice.Below(std::min<uint64_t>(shape.users, kUsers.size()))];
    job.submission.project = kProjects[dice.Below(kProjects.size())];
  }
  kind->make(dice, shape, job);
  if (shape.urgent > 0) MakeUrgentOrNot(dice, shape, job);
  return job;
}

NodeTruth DrawNode(Dice& dice, const Shape& shape, uint32_t number) {
  NodeTruth node{.devices = static_cast<uint32_t>(
                     shape.most_devices > 4 ? shape.most_devices : 1 + dice.Below(shape.most_devices)),
                 .storage = shape.two_storages && number % 2 == 1 ? "storage-b" : "storage-a"};
  if (!shape.kinds_of_nodes) return node;
  const uint64_t kind = dice.Below(3);
  node.model = kind == 0 ? "NVIDIA H100 80GB HBM3" : kind == 1 ? "NVIDIA A100-SXM4-40GB" : "cpu";
  // What a driver tells is less than what the GPU is sold as.
  node.memory_bytes = kind == 0 ? uint64_t{79} << 30 : kind == 1 ? uint64_t{39} << 30 : 0;
  // A fabric is in one zone, and a placement group in one fabric.
  std::string place = dice.Chance(0.5) ? "a" : "b";
  node.labels["zone"] = place;
  if (dice.Chance(0.7)) node.labels["fabric"] = place += dice.Chance(0.5) ? "1" : "2";
  if (dice.Chance(0.5)) node.labels["placement_group"] = place += dice.Chance(0.5) ? "x" : "y";
  if (dice.Chance(0.3)) node.labels["capacity"] = "spot";
  node.price_per_hour = static_cast<double>(dice.Below(9));
  return node;
}

bool NodeDoes(const Needs& needs, const NodeRecord& node) {
  const auto has = [&node](const auto& label) {
    const auto own = node.labels.find(label.first);
    return own != node.labels.end() && std::count(label.second.begin(), label.second.end(), own->second) > 0;
  };
  if (!std::all_of(needs.labels.begin(), needs.labels.end(), has)) return false;
  if (std::any_of(needs.not_labels.begin(), needs.not_labels.end(), has)) return false;
  if (node.devices.empty()) return false;
  const Device& device = node.devices.front();
  const bool is_gpu = device.model != "cpu";
  if ((needs.gpu || needs.memory_bytes > 0 || !needs.models.empty()) && !is_gpu) return false;
  if (needs.cpu && is_gpu) return false;
  if (device.memory_bytes + (uint64_t{1} << 30) < needs.memory_bytes) return false;
  const auto is = [&device](const std::string& model) {
    return device.model.starts_with(model == "a100" ? "NVIDIA A100" : "NVIDIA H100");
  };
  return needs.models.empty() || std::any_of(needs.models.begin(), needs.models.end(), is);
}

namespace {

Budget DrawBudget(Dice& dice, double most) {
  const uint64_t per = dice.Below(10);  // rarely in all: then nothing more of it starts
  return {.most = most * (0.05 + dice.Unit()), .per = static_cast<Period>(per == 9 ? 4 : 1 + per % 3)};
}

Quota DrawQuota(Dice& dice, const Shape& shape) {
  Quota quota;
  const uint64_t devices = uint64_t{shape.nodes} * shape.most_devices;
  if (dice.Chance(0.5)) quota.devices = static_cast<uint32_t>(1 + dice.Below(devices));
  if (dice.Chance(0.3)) quota.queued = static_cast<uint32_t>(1 + dice.Below(8));
  if (dice.Chance(0.3)) quota.device_hours = DrawBudget(dice, 2);
  if (dice.Chance(0.3)) quota.spend = DrawBudget(dice, 6);
  return quota;
}

/// Several users and projects, and how much each may have.
void DrawAccounts(Dice& dice, Shape& shape) {
  shape.users = 2 + static_cast<uint32_t>(dice.Below(2));
  if (dice.Chance(0.7)) shape.half_life = std::chrono::hours(7 * 24);
  if (dice.Chance(0.4)) shape.shares.users[kUsers[0]] = 0.25 + 4 * dice.Unit();
  if (dice.Chance(0.4)) shape.shares.projects["vision"] = 0.25 + 4 * dice.Unit();
  shape.to_midnight = dice.Between(minutes(5), shape.busy);
  if (dice.Chance(0.3)) return;
  if (dice.Chance(0.5)) shape.quotas.user = DrawQuota(dice, shape);
  if (dice.Chance(0.5)) shape.quotas.users[kUsers[0]] = DrawQuota(dice, shape);
  if (dice.Chance(0.5)) shape.quotas.project = DrawQuota(dice, shape);
  if (dice.Chance(0.5)) shape.quotas.projects["vision"] = DrawQuota(dice, shape);
}

/// Few nodes, all taken for long by small jobs, so that room has to be made for the urgent ones, by one or by
/// several; and nothing else happens that would hide what these lose.
void Crowd(Dice& dice, Shape& shape) {
  shape = {.nodes = static_cast<uint32_t>(4 + dice.Below(4)),
           .most_devices = 1,
           .between_jobs = seconds(15),
           .between_faults = Duration::zero(),
           .rank_faults = 0,
           .failed_commits = 0,
           .urgent = 0.25};
}

/// Several gangs at once that may grow, on nodes that others leave: two of them could want the same ones.
void Expand(Dice& dice, Shape& shape) {
  shape = {.nodes = static_cast<uint32_t>(6 + dice.Below(5)),
           .most_devices = 1,
           .between_jobs = seconds(50),
           .longest_work = minutes(6),
           .between_faults = minutes(4),
           .rank_faults = 0.1,
           .failed_commits = 0,
           .elastic = 0.6};
}

/// Enough nodes to choose between, for gangs that are to be close and for whoever has to make room, and not
/// so much trouble that nobody could tell what they lose by it.
void Enlarge(Dice& dice, Shape& shape) {
  shape.nodes = static_cast<uint32_t>(8 + dice.Below(9));
  shape.kinds_of_nodes = dice.Chance(0.7);
  if (dice.Chance(0.5)) shape.most_devices = 1;  // so that who makes room does so by nodes
  shape.between_jobs /= 3;
  shape.between_faults *= 4;
  shape.rank_faults /= 4;
  if (dice.Chance(0.5)) shape.aging = Duration::zero();
}

}  // namespace

Shape ShapeOf(uint64_t seed) {
  Dice dice(seed ^ 0x5eed'0000'0000'0000);  // other draws than the life's
  Shape shape{.nodes = static_cast<uint32_t>(1 + dice.Below(5)),
              .most_devices = static_cast<uint32_t>(1 + dice.Below(4)),
              .two_storages = dice.Chance(0.3)};
  shape.busy = dice.Between(minutes(15), minutes(40));
  shape.between_jobs = dice.Between(seconds(20), minutes(3));
  shape.longest_work = dice.Between(minutes(1), minutes(15));
  shape.between_faults = dice.Chance(0.1) ? Duration::zero() : dice.Between(seconds(30), minutes(6));
  if (dice.Chance(0.2)) shape.rank_faults = 0;
  if (dice.Chance(0.3)) shape.failed_commits = 0;
  shape.kinds_of_nodes = dice.Chance(0.4);
  if (dice.Chance(0.6)) shape.between_orders = dice.Between(seconds(40), minutes(5));
  if (dice.Chance(0.5)) DrawAccounts(dice, shape);
  if (dice.Chance(0.6)) shape.aging = dice.Between(minutes(2), minutes(12));
  shape.preemption = dice.Chance(0.9);
  if (dice.Chance(0.18)) {
    Enlarge(dice, shape);
  } else if (dice.Chance(0.08)) {
    Crowd(dice, shape);
  } else if (dice.Chance(0.04)) {
    Expand(dice, shape);
  }
  if (shape.half_life > Duration::zero() && dice.Chance(0.2))
    shape.turns_end = dice.Between(minutes(5), shape.busy);
  return shape;
}

Shape LargeShape(uint32_t nodes) {
  return {.nodes = nodes,
          .most_devices = 8,
          .busy = std::chrono::hours(24),
          .between_jobs = minutes(8) * 25 / std::max(nodes, 1U),
          .longest_work = std::chrono::hours(8),
          .between_faults = std::chrono::hours(100) / std::max(nodes, 1U),
          .rank_faults = 0.1,
          .failed_commits = 0.0001,
          .batch_ms = 2500,  // a daemon that has much to do, which also saves time here
          .tick = std::chrono::seconds(3)};
}

}  // namespace imgd::sim
