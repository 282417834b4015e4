#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>

#include "cli/checkpoint_ref.h"
#include "cli/checkpoints.h"
#include "cli/commands.h"
#include "cli/format.h"
#include "cli/serialize.h"
#include "cli/weights.h"
#include "common/setting_diff.h"

namespace imgd::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMostTensors = 10;  ///< that the table names

struct CompareOptions {
  std::string a, b;
  WhichWeights weights;
  OutputFormat format = OutputFormat::kTable;
};

SettingMap SettingsOf(const Weights& weights) {
  return weights.lineage ? SettingsOfYaml(weights.lineage->configuration) : SettingMap();
}

using Figures = std::vector<std::pair<std::string, std::string>>;

/// Name and value of what is shown side by side.
Figures FiguresOf(const CheckpointSummary& summary, const Weights& weights) {
  const Lineage lineage = weights.lineage.value_or(Lineage());
  const CheckpointScore score = summary.score.value_or(CheckpointScore());
  const auto known = [](bool is_known, std::string text) { return is_known ? std::move(text) : ""; };
  const bool has_score = summary.score.has_value();
  return {
      {"job", known(weights.lineage.has_value(), fmt::format("{} ({})", lineage.job, lineage.job_id))},
      {"checkpoint", ShortName(summary.ref)},
      {"epoch", known(summary.epoch.has_value(), fmt::format("{:.2f}", summary.epoch.value_or(0)))},
      {"top-1", known(has_score, HumanPercent(score.top1))},
      {"top-5", known(has_score, HumanPercent(score.top5))},
      {"validation loss", known(has_score, HumanLoss(score.loss))},
      {"training loss", HumanLoss(summary.loss)},
      {"ranks", std::to_string(summary.world_size)},
      {"training set", lineage.train.checksum},
      {"program", known(weights.lineage.has_value(), fmt::format("{} {}", lineage.version, lineage.commit))}};
}

std::vector<Difference> SideBySide(const Figures& a, const Figures& b) {
  std::vector<Difference> out;
  for (size_t i = 0; i < a.size(); ++i) out.push_back({a[i].first, a[i].second, b[i].second});
  return out;
}

/// Sums over a tensor's elements.
struct Distance {
  std::string name;
  double squares_a = 0;     ///< of A's elements
  double squares_diff = 0;  ///< of B's less A's
  double greatest = 0;      ///< difference of an element
  bool comparable = true;   ///< of the same shape and a type that is known here

  /// |B - A| / |A|; infinite where A is all zeros and B is not.
  double relative() const {
    if (squares_diff == 0) return 0;
    return squares_a > 0 ? std::sqrt(squares_diff / squares_a) : HUGE_VAL;
  }
};

template <typename T>
void AddElements(std::string_view a, std::string_view b, Distance& out) {
  for (size_t at = 0; at + sizeof(T) <= a.size(); at += sizeof(T)) {
    T x, y;
    std::memcpy(&x, a.data() + at, sizeof x);
    std::memcpy(&y, b.data() + at, sizeof y);
    const double difference = static_cast<double>(y) - static_cast<double>(x);
    out.squares_a += static_cast<double>(x) * static_cast<double>(x);
    out.squares_diff += difference * difference;
    out.greatest = std::max(out.greatest, std::abs(difference));
  }
}

Distance DistanceOf(const TensorView& a, const TensorView& b) {
  Distance out{.name = a.name};
  out.comparable = a.shape == b.shape && a.dtype == b.dtype;
  if (!out.comparable) return out;
  if (a.dtype == "F32") {
    AddElements<float>(a.bytes, b.bytes, out);
  } else if (a.dtype == "F64") {
    AddElements<double>(a.bytes, b.bytes, out);
  } else if (a.dtype == "I64") {
    AddElements<int64_t>(a.bytes, b.bytes, out);
  } else {
    out.comparable = a.bytes == b.bytes;
  }
  return out;
}

struct TensorComparison {
  std::vector<Distance> tensors;  ///< in both, the farthest apart first
  size_t equal = 0;
  std::vector<std::string> only_a, only_b, incomparable;
  Distance all;  ///< of floating point
};

TensorComparison CompareTensors(const SafetensorsContent& a, const SafetensorsContent& b) {
  TensorComparison out;
  for (const auto& tensor : a.tensors) {
    const auto* other = b.Find(tensor.name);
    if (other == nullptr) {
      out.only_a.push_back(tensor.name);
      continue;
    }
    const Distance distance = DistanceOf(tensor, *other);
    if (!distance.comparable) {
      out.incomparable.push_back(tensor.name);
      continue;
    }
    if (tensor.bytes == other->bytes) ++out.equal;
    if (tensor.dtype.starts_with('F')) {
      out.all.squares_a += distance.squares_a;
      out.all.squares_diff += distance.squares_diff;
      out.all.greatest = std::max(out.all.greatest, distance.greatest);
    }
    out.tensors.push_back(distance);
  }
  for (const auto& tensor : b.tensors) {
    if (a.Find(tensor.name) == nullptr) out.only_b.push_back(tensor.name);
  }
  std::stable_sort(out.tensors.begin(), out.tensors.end(),
                   [](const Distance& x, const Distance& y) { return x.relative() > y.relative(); });
  return out;
}

void PrintDifferences(Context& context, const char* title, const std::vector<Difference>& all) {
  Table table({{title}, {.title = "A", .shrink = true}, {.title = "B", .shrink = true}});
  for (const auto& [name, a, b] : all) table.Add({Cell(name), Cell(a), Cell(b)});
  table.Print(context.out(), context.terminal());
}

void PrintTensors(Context& context, const TensorComparison& tensors) {
  auto& out = context.out();
  out << fmt::format("\n{} in both, {} of them equal; |B - A| / |A| is {:.3g} over all weights\n",
                     Count(tensors.tensors.size(), "tensor"), tensors.equal, tensors.all.relative());
  const auto list = [&out](const char* title, const std::vector<std::string>& names) {
    if (!names.empty()) out << fmt::format("{}: {}\n", title, fmt::join(names, ", "));
  };
  list("only in A", tensors.only_a);
  list("only in B", tensors.only_b);
  list("of another shape or type", tensors.incomparable);
  if (tensors.equal == tensors.tensors.size()) return;
  Table table({{.title = "TENSOR", .shrink = true}, {"RELATIVE", true}, {"GREATEST", true}});
  for (size_t i = 0; i < tensors.tensors.size() && i < kMostTensors; ++i) {
    const auto& tensor = tensors.tensors[i];
    if (tensor.squares_diff == 0) break;
    table.Add({Cell(tensor.name), Cell(fmt::format("{:.3g}", tensor.relative())),
               Cell(fmt::format("{:.3g}", tensor.greatest))});
  }
  table.Print(out, context.terminal());
}

/// JSON has no infinity.
Json NumberOrNull(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

Json ComparisonJson(const NamedCheckpoint& a, const NamedCheckpoint& b,
                    const std::vector<Difference>& settings, const TensorComparison& tensors) {
  Json json = {{"a", CheckpointJson(a.summary)}, {"b", CheckpointJson(b.summary)}};
  json["settings"] = Json::array();
  for (const auto& [name, in_a, in_b] : settings)
    json["settings"].push_back({{"name", name}, {"a", in_a}, {"b", in_b}});
  json["relative_difference"] = NumberOrNull(tensors.all.relative());
  json["equal_tensors"] = tensors.equal;
  json["only_in_a"] = tensors.only_a;
  json["only_in_b"] = tensors.only_b;
  json["incomparable"] = tensors.incomparable;
  json["tensors"] = Json::array();
  for (const auto& tensor : tensors.tensors) {
    json["tensors"].push_back({{"name", tensor.name},
                               {"relative_difference", NumberOrNull(tensor.relative())},
                               {"greatest_difference", NumberOrNull(tensor.greatest)}});
  }
  return json;
}

int RunCompare(Context& context, const CompareOptions& options) {
  const auto a = FindCheckpoint(context, options.a);
  if (!a) return context.Fail(a.error());
  const auto b = FindCheckpoint(context, options.b);
  if (!b) return context.Fail(b.error());
  const auto from_a = ReadWeights(*a->folder.store, a->summary, options.weights);
  if (!from_a) return context.Fail({from_a.error()});
  const auto from_b = ReadWeights(*b->folder.store, b->summary, options.weights);
  if (!from_b) return context.Fail({from_b.error()});
  const auto settings = SettingsThatDiffer(SettingsOf(**from_a), SettingsOf(**from_b));
  const auto tensors = CompareTensors((*from_a)->content, (*from_b)->content);
  if (options.format != OutputFormat::kTable) {
    PrintDocument(context.out(), ComparisonJson(*a, *b, settings, tensors), options.format);
    return 0;
  }
  PrintDifferences(context, "", SideBySide(FiguresOf(a->summary, **from_a), FiguresOf(b->summary, **from_b)));
  context.out() << '\n';
  if (!(*from_a)->lineage || !(*from_b)->lineage) {
    context.out() << "settings are not known of both\n";
  } else if (settings.empty()) {
    context.out() << "the same settings\n";
  } else {
    PrintDifferences(context, "SETTING", settings);
  }
  PrintTensors(context, tensors);
  return 0;
}

}  // namespace

void AddCompare(Command checkpoints, Context& context) {
  auto options = std::make_shared<CompareOptions>();
  Command command = checkpoints.AddSubcommand(
      "compare", "Compare two checkpoints: figures, settings that differ, and how far apart the weights are");
  command.AddOption("A", options->a, kCheckpointHelp).Required().ValueName("");
  command.AddOption("B", options->b, "The other one").Required().ValueName("");
  AddWhichWeights(command, options->weights);
  AddOutputOption(command, options->format, kPlainFormats);
  command.Runs([&context, options] { return RunCompare(context, *options); });
}

}  // namespace imgd::cli
