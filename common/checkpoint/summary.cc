#include "common/checkpoint/summary.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <tuple>

#include "common/json.h"

namespace imgd {
namespace {

using SummaryJson = nlohmann::json;

constexpr size_t kMostBytes = size_t{64} << 20;  ///< a million names of classes

/// An object; an empty one where the text is none.
SummaryJson ObjectIn(std::string_view text) {
  SummaryJson json = SummaryJson::parse(text, nullptr, false);
  return json.is_object() ? json : SummaryJson::object();
}

/// The same of a file, which may not be there.
SummaryJson ObjectIn(const CheckpointStore& store, const CheckpointRef& ref, const char* name) {
  return ObjectIn(store.Read(ref, name, kMostBytes).value_or(""));
}

std::optional<double> NumberOf(const SummaryJson& json, const char* key) {
  const auto found = json.find(key);
  if (found == json.end() || !found->is_number()) return std::nullopt;
  return found->get<double>();
}

template <typename T>
T CountOf(const SummaryJson& json, const char* key) {
  const auto found = json.find(key);
  return found == json.end() ? T{0} : WholeNumber<T>(*found).value_or(0);
}

}  // namespace

std::optional<CheckpointScore> ScoreIn(std::string_view text, uint64_t step) {
  const SummaryJson json = ObjectIn(text);
  const auto top1 = NumberOf(json, "top1");
  if (!top1 || !std::isfinite(*top1) || CountOf<uint64_t>(json, "step") != step) return std::nullopt;
  return CheckpointScore{.top1 = *top1,
                         .top5 = NumberOf(json, "top5").value_or(0),
                         .loss = NumberOf(json, "loss").value_or(0),
                         .images = CountOf<uint64_t>(json, "images")};
}

std::optional<double> EpochsIn(std::string_view text) { return NumberOf(ObjectIn(text), "epoch"); }

CheckpointSummary SummarizeCheckpoint(const CheckpointStore& store, const CheckpointRef& ref) {
  CheckpointSummary out{.ref = ref};
  const SummaryJson manifest = ObjectIn(store, ref, kCheckpointManifest);
  for (const auto& file : manifest.value("files", SummaryJson::array())) {
    if (!file.is_object()) continue;
    out.size_bytes += CountOf<uint64_t>(file, "size");
    if (file.value("name", SummaryJson()) == "ema.safetensors") out.has_average = true;
  }
  const SummaryJson state = ObjectIn(store, ref, "state.json");
  out.epoch = NumberOf(state, "epoch");
  out.loss = NumberOf(state, "last_loss").value_or(0);
  out.world_size = CountOf<int>(state, "world_size");
  if (const auto model = state.find("model"); model != state.end() && model->is_string())
    out.model = model->get<std::string>();
  if (const auto planned = state.find("planned"); planned != state.end() && planned->is_boolean())
    out.planned = planned->get<bool>();
  out.score = ScoreIn(store.Read(ref, "validation.json", kMostBytes).value_or(""), ref.step);
  const CheckpointFacts facts = store.Look(ref);
  out.written_us = facts.written_us;
  out.pinned = facts.pinned;
  return out;
}

Result<std::vector<CheckpointSummary>> SummarizeCheckpoints(const CheckpointStore& store) {
  IMGD_ASSIGN(const auto all, store.List());
  std::vector<CheckpointSummary> out;
  for (const auto& ref : all.complete) out.push_back(SummarizeCheckpoint(store, ref));
  const auto best = BestFirst(out);
  for (auto& summary : out) summary.best = !best.empty() && summary.ref.path == best.front().ref.path;
  return out;
}

std::vector<CheckpointSummary> BestFirst(const std::vector<CheckpointSummary>& all) {
  std::vector<CheckpointSummary> out;
  std::copy_if(all.begin(), all.end(), std::back_inserter(out), [](const auto& s) { return s.score; });
  std::stable_sort(out.begin(), out.end(), [](const CheckpointSummary& a, const CheckpointSummary& b) {
    return std::tuple(a.score->top1, a.ref.generation, a.ref.step) >
           std::tuple(b.score->top1, b.ref.generation, b.ref.step);
  });
  return out;
}

}  // namespace imgd
