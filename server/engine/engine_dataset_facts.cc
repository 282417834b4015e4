#include <algorithm>

#include "common/dataset_limits.h"
#include "common/job_file.h"
#include "server/engine/dataset_facts.h"
#include "server/engine/engine.h"

/// What is known of data sets from those who see their files.
namespace imgd {
namespace {

template <typename Field>
void Keep(Field* field, int most) {
  if (field->size() > most) field->DeleteSubrange(most, field->size() - most);
}

template <typename Findings>
void BoundFindings(Findings* findings) {
  Keep(findings, kMostDatasetFindings);
  for (auto& finding : *findings) {
    Shorten(finding.mutable_place(), kMostDatasetTextBytes);
    Shorten(finding.mutable_reason(), kMostDatasetTextBytes);
  }
}

void BoundContents(v1::DatasetContents& contents) {
  Shorten(contents.mutable_version(), kMostDatasetTextBytes);
  Keep(contents.mutable_parts(), kMostDatasetParts);
  for (auto& part : *contents.mutable_parts()) {
    Shorten(part.mutable_name(), kMostDatasetNameBytes);
    Keep(part.mutable_classes(), kMostDatasetClasses);
    for (auto& one : *part.mutable_classes()) Shorten(one.mutable_name(), kMostDatasetNameBytes);
  }
  Keep(contents.mutable_samples(), kMostDatasetSamples);
  for (auto& sample : *contents.mutable_samples()) {
    Shorten(sample.mutable_part(), kMostDatasetNameBytes);
    Shorten(sample.mutable_name(), kMostDatasetTextBytes);
    Shorten(sample.mutable_class_name(), kMostDatasetNameBytes);
    if (sample.picture().size() > kMostSamplePictureBytes) sample.clear_picture();
  }
  BoundFindings(contents.mutable_left_out_images());
}

}  // namespace

v1::DatasetProgress ProgressOf(const DatasetRecord& set) {
  v1::DatasetProgress out;
  out.ParseFromString(set.progress);
  return out;
}

void Bound(v1::DatasetFacts& facts) {
  if (facts.has_contents()) BoundContents(*facts.mutable_contents());
  if (!facts.has_verification()) return;
  Shorten(facts.mutable_verification()->mutable_version(), kMostDatasetTextBytes);
  BoundFindings(facts.mutable_verification()->mutable_findings());
}

void Bound(v1::DatasetProgress& progress) {
  Shorten(progress.mutable_doing(), kMostDatasetNameBytes);
  Shorten(progress.mutable_part(), kMostDatasetNameBytes);
}

/// The set that was promised, or one that the job's file names and that is made again where it lies; null for
/// jobs that convert nothing, and where the set has no name.
DatasetRecord* Engine::SetMadeBy(JobId id) {
  const JobRecord* job = reactor_.state().FindJob(id);
  if (job == nullptr || job->kind != JobKind::kConversion) return nullptr;
  const auto promised = std::find_if(datasets_.begin(), datasets_.end(),
                                     [id](const auto& set) { return set.second.made_by == id; });
  if (promised != datasets_.end()) return &promised->second;
  const auto spec = ParseJobFile(OrFail(state_.JobFile(id)), "job.yaml");
  if (!spec) return nullptr;
  const auto known = datasets_.find(spec->convert.registers);
  if (known == datasets_.end() || known->second.address != spec->convert.target) return nullptr;
  return known->second.made_by == JobId() ? &known->second : nullptr;
}

void Engine::OnDatasetProgress(JobId job, const v1::DatasetProgress& progress) {
  DatasetRecord* set = SetMadeBy(job);
  if (set == nullptr) return;
  v1::DatasetProgress kept = progress;
  Bound(kept);
  kept.set_job_id(job.value());
  kept.set_time_us(now_.wall.micros);
  set->progress = kept.SerializeAsString();
  state_.SaveDataset(*set);
  view_changed_ = view_urgent_ = true;  // after a commit that fails they are what the view has
}

void Engine::OnDatasetFacts(JobId job, const NodeId& node, const v1::DatasetFacts& facts) {
  if (DatasetRecord* set = SetMadeBy(job))
    TakeFacts(*set, facts, fmt::format("job {} on node {}", job, node));
}

Result<DatasetAnswer> Engine::TakeFacts(const DatasetOrder& order) {
  const auto known = datasets_.find(order.record.name);
  if (known == datasets_.end())
    return Fail(ErrorCode::kNotFound, "there is no data set '{}'", order.record.name);
  if (known->second.address != order.record.address) {
    return Fail(ErrorCode::kFailedPrecondition, "address: '{}' stands for {}, and {} was looked at",
                order.record.name, known->second.address, order.record.address);
  }
  TakeFacts(known->second, *order.facts, order.record.owner);
  return DatasetAnswer{.record = known->second, .existed = true};
}

void Engine::TakeFacts(DatasetRecord& set, v1::DatasetFacts facts, const std::string& told_by) {
  Bound(facts);
  if (facts.has_contents()) {
    auto& contents = *facts.mutable_contents();
    // The address of a picture has it, and never stands for another.
    set.described = std::max(now_.wall, WallTime{set.described.micros + 1});
    contents.set_time_us(set.described.micros);
    contents.set_told_by(told_by);
    set.images = 0;
    for (const auto& part : contents.parts()) set.images += part.images();
    set.classes = contents.parts().empty() ? 0 : contents.parts(0).class_count();
    state_.SaveDatasetContents(set.name, contents.SerializeAsString());
  }
  if (facts.has_verification()) {
    auto& verification = *facts.mutable_verification();
    set.verified = now_.wall;
    set.broken = verification.broken();
    verification.set_time_us(set.verified.micros);
    verification.set_told_by(told_by);
    state_.SaveDatasetVerification(set.name, verification.SerializeAsString());
  }
  state_.SaveDataset(set);
  view_changed_ = view_urgent_ = true;
}

}  // namespace imgd
