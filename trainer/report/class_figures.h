#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace imgd::report {

/// A class in a validation pass.
struct ClassCount {
  uint64_t images = 0;
  uint64_t top1 = 0;  ///< of them, that were answered rightly
  uint64_t top5 = 0;  ///< of them, whose class was among the five best answers
};

/// What the model made of an image: of one of which it was most wrong, or of another.
struct WorstImage {
  std::string name;  ///< as the data set has it
  uint32_t label = 0;
  uint32_t answer = 0;
  double probability = 0;  ///< that the model gave its answer, 0 to 1
  double loss = 0;
  uint32_t sample = 0;  ///< its number in the set
};

/// What a validation pass found of each class, over all ranks.
struct ClassFigures {
  uint64_t step = 0;
  double epoch = 0;
  std::vector<std::string> names;  ///< of the classes, by label
  std::vector<ClassCount> counts;  ///< by label
  /// Images by label and answer, [label * classes + answer]; empty for more than kMostConfused classes.
  std::vector<uint32_t> confusion;
  std::vector<WorstImage> worst;   ///< those with the highest loss first
  std::vector<WorstImage> chosen;  ///< a few from all over the set, the same in each pass; by their numbers

  static constexpr size_t kMostConfused = 2048;
  static constexpr size_t kMostWorst = 50;
  uint32_t at(size_t label, size_t answer) const { return confusion[label * names.size() + answer]; }
};

/// A pair of classes that are taken for one another.
struct Mistake {
  uint32_t label = 0;
  uint32_t answer = 0;
  uint32_t images = 0;
};

/// The most frequent mistakes, at most `most`, the most frequent first.
std::vector<Mistake> MostFrequentMistakes(const ClassFigures& figures, size_t most);

/// Labels of the classes that have images, the worst first, those with fewer images behind at the same top-1.
std::vector<uint32_t> WorstFirst(const ClassFigures& figures);

/// The object that docs/metrics.md describes, on one line: at most 5,000 classes (those with the least top-1,
/// by label), the matrix in numbers up to 100 classes, 100 mistakes, 50 images.
std::string ToJson(const ClassFigures& figures);

/// A table for people: a line a class, the worst first.
std::string ToTable(const ClassFigures& figures);

}  // namespace imgd::report
