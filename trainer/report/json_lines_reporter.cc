#include "trainer/report/json_lines_reporter.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "trainer/report/record_file.h"

namespace imgd::report {
namespace {

class JsonLinesLog final : public ScalarLog {
 public:
  JsonLinesLog(FiguresPlace place, const Clock& clock)
      : place_(std::move(place)), clock_(clock), queue_([this] { return Open(); }) {}

  void StartAfter(uint64_t) override {}

  Status Add(const ScalarGroup& group) override {
    nlohmann::ordered_json line = {{"time", static_cast<double>(clock_.Wall().micros) / 1e6},
                                   {"generation", place_.generation},
                                   {"step", group.step},
                                   {"epoch", group.epoch}};
    for (const auto& scalar : group.scalars) line[scalar.tag] = scalar.value;
    return queue_.Add(line.dump() + "\n");
  }

  Status Flush() override { return queue_.Flush(); }

 private:
  Result<RecordFile> Open() const {
    IMGD_TRY(MakeFolders(place_.folder));
    const auto path = place_.folder / fmt::format("metrics.g{}.jsonl", place_.generation);
    IMGD_ASSIGN(auto file, RecordFile::Open(path));
    IMGD_ASSIGN(const auto content, ReadFile(path));
    const size_t whole = content.rfind('\n') + 1;  // 0 where there is no line
    if (whole != content.size()) IMGD_TRY(file.CutAt(whole));
    return file;
  }

  const FiguresPlace place_;
  const Clock& clock_;
  RecordQueue queue_;
};

}  // namespace

std::unique_ptr<Reporter> MakeJsonLinesReporter(FiguresPlace place, const Clock& clock,
                                                std::function<void(const std::string&)> note) {
  return MakeScalarReporter(std::make_unique<JsonLinesLog>(std::move(place), clock), std::move(note));
}

}  // namespace imgd::report
