#include "cli/dataset_facts.h"

#include <algorithm>

#include "cli/words.h"
#include "common/dataset_limits.h"
#include "common/utf8.h"
#include "common/version.h"
#include "trainer/data/convert_source.h"
#include "trainer/data/dataset.h"
#include "trainer/data/thumbnail.h"

namespace imgd::cli {
namespace {

std::string Short(const std::string& text, size_t most = kMostDatasetTextBytes) {
  std::string out = ToUtf8(text);
  Shorten(&out, most);
  return out;
}

void AddFinding(std::string place, std::string reason,
                google::protobuf::RepeatedPtrField<v1::DatasetFinding>* out) {
  if (out->size() >= kMostDatasetFindings) return;
  auto& added = *out->Add();
  added.set_place(Short(place));
  added.set_reason(Short(reason));
}

/// Some images of each of evenly spread classes, by label: at most `most`.
std::vector<uint32_t> SamplesOf(const data::Dataset& set, size_t most) {
  const size_t classes = set.classes().size();
  std::vector<size_t> wanted(classes, 0);
  for (size_t k = 0; classes > 0 && k < most; ++k) ++wanted[k * classes / most];
  std::vector<uint32_t> out;
  for (size_t i = 0; i < set.size() && out.size() < most; ++i) {
    size_t& left = wanted[static_cast<size_t>(set.label(i))];
    if (left == 0) continue;
    --left;
    out.push_back(static_cast<uint32_t>(i));
  }
  std::ranges::stable_sort(out, {}, [&set](uint32_t i) { return set.label(i); });
  return out;
}

void AddSamples(const data::Dataset& set, const std::string& part, size_t most, v1::DatasetContents& out) {
  const auto samples = SamplesOf(set, most);
  set.WillRead(samples);
  data::Thumbnails thumbnails;
  for (const uint32_t i : samples) {
    auto& added = *out.add_samples();
    added.set_part(part);
    added.set_name(Short(set.name(i)));
    added.set_label(static_cast<uint32_t>(set.label(i)));
    added.set_class_name(Short(set.classes()[static_cast<size_t>(set.label(i))], kMostDatasetNameBytes));
    added.set_picture(thumbnails.Make(set, i).value_or(""));
  }
}

void AddPart(const data::Dataset& set, const std::string& name, v1::DatasetContents& out) {
  std::vector<uint64_t> images(set.classes().size(), 0);
  for (size_t i = 0; i < set.size(); ++i) ++images[static_cast<size_t>(set.label(i))];
  auto& part = *out.add_parts();
  part.set_name(name);
  part.set_images(set.size());
  part.set_class_count(static_cast<uint32_t>(images.size()));
  for (size_t c = 0; c < std::min<size_t>(images.size(), kMostDatasetClasses); ++c) {
    auto& added = *part.add_classes();
    added.set_name(Short(set.classes()[c], kMostDatasetNameBytes));
    added.set_images(images[c]);
  }
}

}  // namespace

std::vector<PlacedPart> PlacedPartsOf(const std::string& where) {
  std::vector<PlacedPart> parts;
  for (const auto& part : data::PartsOf(where)) parts.push_back({part.name, part.where});
  if (parts.empty()) parts.push_back({"", where});
  return parts;
}

Result<v1::DatasetContents> ContentsOf(const std::vector<PlacedPart>& parts) {
  static_assert(data::Thumbnails::kMostBytes <= kMostSamplePictureBytes);
  v1::DatasetContents out;
  out.set_version(kVersion);
  for (const auto& part : parts) {
    IMGD_ASSIGN(const auto set, data::OpenDataset(part.where));
    AddPart(*set, part.name, out);
    AddSamples(*set, part.name, static_cast<size_t>(kMostDatasetSamples) / parts.size(), out);
  }
  return out;
}

void AddLeftOut(const data::ConvertReport& report, v1::DatasetContents& out) {
  out.set_left_out(out.left_out() + report.LeftOut());
  for (const auto& [kind, entry] : report.left_out) {
    for (const auto& name : entry.names) AddFinding(name, kind, out.mutable_left_out_images());
  }
}

void AddVerified(const data::VerifyReport& report, v1::DatasetVerification& out) {
  out.set_version(kVersion);
  out.set_images(out.images() + report.images);
  out.set_decoded(out.decoded() + report.decoded);
  out.set_shards(out.shards() + report.shards);
  out.set_checksums(out.checksums() + report.checksums);
  out.set_indexes(out.indexes() + report.indexes);
  out.set_broken(out.broken() + report.broken);
  out.set_doubtful(out.doubtful() + report.doubtful);
  for (const auto& finding : report.findings)
    AddFinding(finding.place, finding.reason, out.mutable_findings());
}

void ReportFacts(Context& context, Client& client, const std::string& name, const std::string& address,
                 v1::DatasetFacts facts) {
  v1::ReportDatasetRequest request;
  request.set_name(name);
  request.set_address(address);
  *request.mutable_facts() = std::move(facts);
  request.set_actor(OwnerName(context.env()));
  const auto answer = client.ReportDataset(request);
  if (!answer)
    context.Warn(fmt::format("imgd was not told what was found: {}", answer.error().front().message));
}

}  // namespace imgd::cli
