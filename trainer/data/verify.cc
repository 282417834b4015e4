#include "trainer/data/verify.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "common/url.h"
#include "trainer/data/dataset.h"
#include "trainer/data/jpeg.h"
#include "trainer/data/shard_index.h"
#include "trainer/data/shard_set.h"
#include "trainer/data/verify_shards.h"

namespace imgd::data {
namespace {

constexpr size_t kImageNetClasses = 1000;
constexpr uint64_t kImageNetTrain = 1'281'167;
constexpr uint64_t kImageNetVal = 50'000;
constexpr uint64_t kImageNetValOfClass = 50;
constexpr uint64_t kImageNetFewest = 732;  ///< training images of a class
constexpr uint64_t kImageNetMost = 1300;
constexpr size_t kWordsShown = 5;
constexpr size_t kVerifyStep = 32;  ///< images that a thread takes at a time

std::string Listed(const std::vector<std::string>& words) {
  std::string text;
  for (size_t i = 0; i < std::min(words.size(), kWordsShown); ++i) text += (i == 0 ? "" : ", ") + words[i];
  if (words.size() > kWordsShown) text += fmt::format(" and {} more", words.size() - kWordsShown);
  return text;
}

/// Names that are numbers given to records are no names.
bool IsNumber(const std::string& name) { return name.find_first_not_of("0123456789") == std::string::npos; }

/// Names that two images have.
void FindSameNames(const Dataset& set, bool numbers_are_names, const VerifyOptions& options,
                   VerifyReport& report) {
  std::vector<std::pair<size_t, uint32_t>> hashes;  // names of a million images would fill the memory
  hashes.reserve(set.size());
  for (size_t i = 0; i < set.size(); ++i) {
    const std::string name = set.name(i);
    if (numbers_are_names || !IsNumber(name))
      hashes.emplace_back(std::hash<std::string>()(name), static_cast<uint32_t>(i));
  }
  std::ranges::sort(hashes);
  std::vector<std::pair<uint32_t, uint32_t>> twice;  // later, earlier
  for (size_t i = 1; i < hashes.size(); ++i) {
    const auto earlier = hashes[i - 1].second;
    const auto later = hashes[i].second;
    if (hashes[i].first == hashes[i - 1].first && set.name(earlier) == set.name(later))
      twice.emplace_back(later, earlier);
  }
  std::ranges::sort(twice);
  for (const auto& [later, earlier] : twice)
    report.Add(set.place(later), fmt::format("its name is also that of {}", set.place(earlier)),
               options.most_findings);
}

/// Decodes all images, each thread the next few that nobody has taken.
class Decoding {
 public:
  Decoding(const Dataset& set, const VerifyOptions& options, const VerifyProgress& progress)
      : set_(set), options_(options), progress_(progress) {}

  Status Run(VerifyReport& report) {
    {
      std::vector<std::jthread> threads;
      for (int i = 1; i < options_.jobs; ++i) threads.emplace_back([this] { Work(); });
      Work();
    }
    if (stop_) return Fail(ErrorCode::kCancelled, "stopped");
    report.decoded = set_.size();
    for (auto& [i, reason] : bad_.first) report.Add(set_.place(i), std::move(reason), options_.most_findings);
    report.broken += bad_.dropped;
    for (auto& [i, words] : warned_.first) report.warnings.push_back({set_.place(i), std::move(words)});
    report.doubtful = warned_.first.size() + warned_.dropped;
    return {};
  }

 private:
  void Work() {
    JpegDecoder decoder;
    FileBuffer file;
    std::vector<uint32_t> samples;
    while (!stop_) {
      const size_t first = next_.fetch_add(kVerifyStep);
      if (first >= set_.size()) return;
      const size_t end = std::min(first + kVerifyStep, set_.size());
      samples.clear();
      for (size_t i = first; i < end; ++i) samples.push_back(static_cast<uint32_t>(i));
      set_.WillRead(samples);
      for (const uint32_t i : samples) {
        auto doubts = DecodeOne(i, decoder, file);
        if (!doubts) {
          Keep(bad_, i, std::move(doubts).error().message);
        } else if (!doubts->damage.empty()) {
          Keep(bad_, i, "decodes, but is damaged: " + doubts->damage);
        } else if (!doubts->warning.empty()) {
          Keep(warned_, i, std::move(doubts->warning));
        }
      }
      const std::scoped_lock lock(mutex_);
      done_ += samples.size();
      if (progress_ && !stop_ && !progress_(VerifyPhase::kImages, done_, set_.size())) stop_ = true;
    }
  }

  Result<JpegDoubts> DecodeOne(uint32_t i, JpegDecoder& decoder, FileBuffer& file) const {
    IMGD_TRY(set_.Read(i, file));
    return decoder.Examine(file.bytes());
  }

  /// The first images of which there is something to say, and how many more there are.
  struct Kept {
    std::map<uint32_t, std::string> first;
    uint64_t dropped = 0;
  };

  void Keep(Kept& kept, uint32_t i, std::string words) {
    const std::scoped_lock lock(mutex_);
    kept.first.emplace(i, std::move(words));
    if (kept.first.size() <= options_.most_findings) return;
    kept.first.erase(std::prev(kept.first.end()));  // the same ones are kept, whichever thread was first
    ++kept.dropped;
  }

  const Dataset& set_;
  const VerifyOptions& options_;
  const VerifyProgress& progress_;
  std::atomic<size_t> next_ = 0;
  std::atomic<bool> stop_ = false;
  std::mutex mutex_;  // guards all below
  Kept bad_;
  Kept warned_;
  uint64_t done_ = 0;
};

void CountClasses(const Dataset& set, const VerifyOptions& options, VerifyReport& report) {
  report.images = set.size();
  report.classes = set.classes();
  report.class_images.assign(set.classes().size(), 0);
  for (size_t i = 0; i < set.size(); ++i) ++report.class_images[static_cast<size_t>(set.label(i))];
  if (options.classes != 0 && options.classes != set.classes().size()) {
    report.Add("classes",
               fmt::format("there are {}, where {} are asked for", set.classes().size(), options.classes),
               options.most_findings);
  }
  std::vector<std::string> empty;
  for (size_t c = 0; c < set.classes().size(); ++c) {
    if (report.class_images[c] == 0) empty.push_back(set.classes()[c]);
  }
  if (!empty.empty())
    report.notes.push_back(
        fmt::format("{} of {} classes have no image: {}", empty.size(), set.classes().size(), Listed(empty)));
}

/// The message of an error about the place, for those who have been told the place.
std::string ReasonAt(const std::string& place, std::string message) {
  if (message.starts_with(place + ": ")) return message.substr(place.size() + 2);
  if (message.starts_with(place + " ")) return "it" + message.substr(place.size());
  return message;
}

/// An error that is something broken in the set, rather than no set at all.
bool IsBroken(const Error& error) { return error.code == ErrorCode::kDataLoss; }

void AddUnopened(const std::string& where, const Error& error, const VerifyOptions& options,
                 VerifyReport& report) {
  const bool is_known = std::ranges::any_of(report.findings, [&](const auto& finding) {
    return finding.reason == ReasonAt(finding.place, error.message);
  });
  if (!is_known && report.broken == 0) {
    report.Add(where, error.message, options.most_findings);
  } else if (!is_known) {
    report.notes.push_back(error.message);
  }
  report.notes.push_back("the set can't be opened like this, so that its images were not looked at");
}

/// What can be said of an opened set of any form.
Status LookAtImages(const Dataset& set, bool numbers_are_names, const VerifyOptions& options,
                    const VerifyProgress& progress, VerifyReport& report) {
  CountClasses(set, options, report);
  const auto imagenet = CompareToImageNet(report.classes, report.class_images);
  report.notes.insert(report.notes.end(), imagenet.begin(), imagenet.end());
  FindSameNames(set, numbers_are_names, options, report);
  return options.decode ? Decoding(set, options, progress).Run(report) : Status();
}

Result<VerifyReport> VerifyShardSet(const std::string& where, const VerifyOptions& options,
                                    const VerifyProgress& progress) {
  VerifyReport report;
  IMGD_ASSIGN(SourceSettings settings, SourceSettings::FromEnvironment());
  const SourceOpener opener(std::move(settings));
  auto listing = ListShards(where, opener);
  if (!listing && !IsBroken(listing.error())) return tl::unexpected<Error>(std::move(listing).error());
  if (!listing) {
    report.Add(where, listing.error().message, options.most_findings);
    return report;
  }
  const bool numbers_are_names =
      !listing->shards.empty() && FormOf(NameOfFile(listing->shards.front())) == ShardForm::kTar;
  IMGD_TRY(VerifyShards(where, *listing, opener, options, progress, report));
  const auto set = ShardSet::Open(where, std::move(*listing), opener);
  if (!set) {
    if (report.broken == 0 && !IsBroken(set.error())) return tl::unexpected<Error>(set.error());
    AddUnopened(where, set.error(), options, report);
    return report;
  }
  IMGD_TRY(LookAtImages(**set, numbers_are_names, options, progress, report));
  return report;
}

}  // namespace

void VerifyReport::Add(std::string place, std::string reason, size_t most) {
  ++broken;
  if (findings.size() >= most) return;
  reason = ReasonAt(place, std::move(reason));
  findings.push_back({std::move(place), std::move(reason)});
}

std::vector<std::string> CompareToImageNet(const std::vector<std::string>& classes,
                                           const std::vector<uint64_t>& images) {
  const bool wnids = std::ranges::all_of(classes, IsWnid);
  uint64_t total = 0;
  for (const uint64_t n : images) total += n;
  const bool is_val = std::ranges::all_of(images, [](uint64_t n) { return n <= kImageNetValOfClass; }) &&
                      total <= kImageNetVal;
  const uint64_t wanted = is_val ? kImageNetVal : kImageNetTrain;
  const char* part = is_val ? "validation" : "training";
  // A few of its classes, or many images of a thousand others, are not ImageNet with something missing.
  const bool alike = classes.size() == kImageNetClasses && (wnids || total == wanted);
  const bool nearly = wnids && classes.size() >= kImageNetClasses * 9 / 10;
  if (!alike && !nearly) return {};
  std::vector<std::string> unusual;
  for (size_t c = 0; c < classes.size(); ++c) {
    const bool usual = is_val ? images[c] == kImageNetValOfClass
                              : images[c] >= kImageNetFewest && images[c] <= kImageNetMost;
    if (!usual) unusual.push_back(fmt::format("{} ({})", classes[c], images[c]));
  }
  if (classes.size() == kImageNetClasses && total == wanted && unusual.empty()) {
    return {fmt::format("this is the whole {} set of ImageNet-1k: {} classes, {} images", part,
                        kImageNetClasses, wanted)};
  }
  std::vector<std::string> notes;
  notes.push_back(
      fmt::format("this looks like the {} set of ImageNet-1k, but is not the whole of it: {} classes "
                  "instead of {}, {} images instead of {}",
                  part, classes.size(), kImageNetClasses, total, wanted));
  if (!unusual.empty()) {
    notes.push_back(fmt::format("{} of the classes have not {} images: {}", unusual.size(),
                                is_val ? "50" : "732 to 1300", Listed(unusual)));
  }
  return notes;
}

Result<VerifyReport> VerifyDataset(const std::string& where, const VerifyOptions& options,
                                   const VerifyProgress& progress) {
  if (IsShardSet(where)) return VerifyShardSet(where, options, progress);
  VerifyReport report;
  auto set = OpenDataset(where);
  if (!set) {
    if (!IsBroken(set.error())) return tl::unexpected<Error>(std::move(set).error());
    AddUnopened(where, set.error(), options, report);
    return report;
  }
  report.notes = (*set)->notes();
  IMGD_TRY(LookAtImages(**set, /*numbers_are_names=*/true, options, progress, report));
  return report;
}

}  // namespace imgd::data
