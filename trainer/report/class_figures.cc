#include "trainer/report/class_figures.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <numeric>

#include "common/utf8.h"

namespace imgd::report {
namespace {

constexpr size_t kMostListed = 5000;
constexpr size_t kMostInNumbers = 100;
constexpr size_t kMostMistakes = 100;

double ShareOf(uint64_t right, const ClassCount& of) {
  return of.images > 0 ? static_cast<double>(right) / static_cast<double>(of.images) : 0;
}

nlohmann::ordered_json ClassesOf(const ClassFigures& figures) {
  auto labels = WorstFirst(figures);
  if (labels.size() > kMostListed) labels.resize(kMostListed);
  std::ranges::sort(labels);
  auto list = nlohmann::ordered_json::array();
  for (const uint32_t label : labels) {
    const auto& count = figures.counts[label];
    list.push_back({{"class", ToUtf8(figures.names[label])},
                    {"images", count.images},
                    {"top1", ShareOf(count.top1, count)},
                    {"top5", ShareOf(count.top5, count)}});
  }
  return list;
}

nlohmann::ordered_json MistakesOf(const ClassFigures& figures) {
  auto list = nlohmann::ordered_json::array();
  for (const auto& mistake : MostFrequentMistakes(figures, kMostMistakes)) {
    list.push_back({{"class", ToUtf8(figures.names[mistake.label])},
                    {"answer", ToUtf8(figures.names[mistake.answer])},
                    {"images", mistake.images}});
  }
  return list;
}

nlohmann::ordered_json WorstOf(const ClassFigures& figures) {
  auto list = nlohmann::ordered_json::array();
  for (const auto& image : figures.worst) {
    list.push_back({{"image", ToUtf8(image.name)},
                    {"class", ToUtf8(figures.names[image.label])},
                    {"answer", ToUtf8(figures.names[image.answer])},
                    {"probability", image.probability},
                    {"loss", image.loss}});
  }
  return list;
}

}  // namespace

std::vector<uint32_t> WorstFirst(const ClassFigures& figures) {
  std::vector<uint32_t> labels;
  for (uint32_t label = 0; label < figures.counts.size(); ++label) {
    if (figures.counts[label].images > 0) labels.push_back(label);
  }
  std::ranges::stable_sort(labels, [&](uint32_t a, uint32_t b) {
    const auto& x = figures.counts[a];
    const auto& y = figures.counts[b];
    const double of_x = ShareOf(x.top1, x);
    const double of_y = ShareOf(y.top1, y);
    return of_x != of_y ? of_x < of_y : x.images > y.images;
  });
  return labels;
}

std::vector<Mistake> MostFrequentMistakes(const ClassFigures& figures, size_t most) {
  std::vector<Mistake> all;
  const size_t classes = figures.names.size();
  for (size_t i = 0; i < figures.confusion.size(); ++i) {
    if (figures.confusion[i] == 0 || i / classes == i % classes) continue;
    all.push_back(
        {static_cast<uint32_t>(i / classes), static_cast<uint32_t>(i % classes), figures.confusion[i]});
  }
  std::ranges::stable_sort(all, std::greater<>{}, &Mistake::images);
  if (all.size() > most) all.resize(most);
  return all;
}

std::string ToJson(const ClassFigures& figures) {
  nlohmann::ordered_json out = {{"step", figures.step}, {"epoch", figures.epoch}};
  out["classes"] = ClassesOf(figures);
  out["mistakes"] = MistakesOf(figures);
  const size_t classes = figures.names.size();
  if (classes <= kMostInNumbers && !figures.confusion.empty()) {
    auto rows = nlohmann::ordered_json::array();
    for (size_t label = 0; label < classes; ++label) {
      const auto* row = figures.confusion.data() + label * classes;
      rows.push_back(std::vector<uint32_t>(row, row + classes));
    }
    out["confusion"] = std::move(rows);
  }
  out["worst_images"] = WorstOf(figures);
  return out.dump();
}

std::string ToTable(const ClassFigures& figures) {
  size_t width = std::string_view("class").size();
  for (const auto& name : figures.names) width = std::max(width, name.size());
  std::string out = fmt::format("{:<{}}  {:>7}  {:>8}  {:>8}\n", "class", width, "images", "top-1", "top-5");
  for (const uint32_t label : WorstFirst(figures)) {
    const auto& count = figures.counts[label];
    out += fmt::format("{:<{}}  {:>7}  {:>6.2f} %  {:>6.2f} %\n", figures.names[label], width, count.images,
                       100 * ShareOf(count.top1, count), 100 * ShareOf(count.top5, count));
  }
  return out;
}

}  // namespace imgd::report
