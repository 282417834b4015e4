#include "trainer/data/convert_report.h"

#include <nlohmann/json.hpp>

#include "common/json.h"

namespace imgd::data {
namespace {

using Json = nlohmann::ordered_json;

void AddTo(ConvertReport::Entry& entry, std::string name) {
  ++entry.count;
  if (entry.names.size() < ConvertReport::kMaxNames) entry.names.push_back(std::move(name));
}

void MergeInto(ConvertReport::Entry& to, const ConvertReport::Entry& from) {
  to.count += from.count;
  for (const auto& name : from.names) {
    if (to.names.size() < ConvertReport::kMaxNames) to.names.push_back(name);
  }
}

void MergeInto(ConvertReport::Entries& to, const ConvertReport::Entries& from) {
  for (const auto& [kind, entry] : from) MergeInto(to[kind], entry);
}

Json ToJson(const ConvertReport::Entry& entry) { return {{"count", entry.count}, {"names", entry.names}}; }

Json ToJson(const ConvertReport::Entries& entries) {
  Json json = Json::object();
  for (const auto& [kind, entry] : entries) json[kind] = ToJson(entry);
  return json;
}

// Names of files need not be UTF-8.
std::string Dump(const Json& json) {
  return json.dump(1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace) + "\n";
}

Json ToJson(const ConvertReport& report) {
  return {{"written", report.written},           {"resized", report.resized},
          {"restart_marked", report.marked},     {"repaired", ToJson(report.repaired)},
          {"left_out", ToJson(report.left_out)}, {"taken_as_they_are", ToJson(report.as_is)},
          {"renamed", ToJson(report.renamed)},   {"wrong_checksums", ToJson(report.checksums)}};
}

struct Broken {};

uint64_t Number(const nlohmann::json& json) {
  const auto value = WholeNumber<uint64_t>(json);
  if (!value) throw Broken();
  return *value;
}

ConvertReport::Entry EntryFrom(const nlohmann::json& json) {
  return {Number(json.at("count")), json.at("names").get<std::vector<std::string>>()};
}

ConvertReport::Entries EntriesFrom(const nlohmann::json& json) {
  ConvertReport::Entries entries;
  for (const auto& [kind, entry] : json.items()) entries[kind] = EntryFrom(entry);
  return entries;
}

ConvertReport ReportFrom(const nlohmann::json& json) {
  return {.written = Number(json.at("written")),
          .resized = Number(json.at("resized")),
          .marked = Number(json.at("restart_marked")),
          .repaired = EntriesFrom(json.at("repaired")),
          .left_out = EntriesFrom(json.at("left_out")),
          .as_is = EntriesFrom(json.at("taken_as_they_are")),
          .renamed = EntriesFrom(json.at("renamed")),
          .checksums = EntryFrom(json.at("wrong_checksums"))};
}

}  // namespace

void ConvertReport::Add(const PreparedImage& image, const std::string& name, bool repairs) {
  if (!image.keep) {
    AddLeftOut(image.finding, image.detail.empty() ? name : fmt::format("{}: {}", name, image.detail));
    return;
  }
  ++written;
  if (image.resized) ++resized;
  if (image.marked) ++marked;
  if (image.finding == Finding::kNone) return;
  AddTo((repairs ? repaired : as_is)[std::string(NameOf(image.finding))], name);
}

void ConvertReport::AddLeftOut(Finding finding, std::string what) {
  AddTo(left_out[std::string(NameOf(finding))], std::move(what));
}

void ConvertReport::AddRenamed(const std::string& reason, std::string what) {
  AddTo(renamed[reason], std::move(what));
}

void ConvertReport::Merge(const ConvertReport& other) {
  written += other.written;
  resized += other.resized;
  marked += other.marked;
  MergeInto(repaired, other.repaired);
  MergeInto(left_out, other.left_out);
  MergeInto(as_is, other.as_is);
  MergeInto(renamed, other.renamed);
  MergeInto(checksums, other.checksums);
}

uint64_t ConvertReport::LeftOut() const {
  uint64_t sum = 0;
  for (const auto& [kind, entry] : left_out) sum += entry.count;
  return sum;
}

std::string ShardNote::ToJson() const {
  return Dump({{"name", name},
               {"bytes", bytes},
               {"images", images},
               {"crc32c", crc32c},
               {"report", data::ToJson(report)}});
}

Result<ShardNote> ShardNote::Parse(const std::string& text, const std::string& name) {
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  try {
    ShardNote note{.name = json.at("name").get<std::string>(),
                   .bytes = Number(json.at("bytes")),
                   .images = static_cast<uint32_t>(Number(json.at("images"))),
                   .crc32c = json.at("crc32c").get<std::string>()};
    note.report = ReportFrom(json.at("report"));
    return note;
  } catch (const nlohmann::json::exception& e) {
    return Fail(ErrorCode::kDataLoss, "{} is no shard's note: {}", name, e.what());
  } catch (const Broken&) {
    return Fail(ErrorCode::kDataLoss, "{} is no shard's note: a count is no whole number", name);
  }
}

std::string ReportToJson(const ReportHead& head, const ConvertReport& report) {
  Json json = {{"format", "imgd-conversion-1"},
               {"name", head.name},
               {"to", head.form},
               {"shards", head.shards},
               {"bytes", head.bytes},
               {"source_images", head.source_images},
               {"resize", head.rules.resize},
               {"repairs", head.rules.repair},
               {"exif_orientation", "ignored: pixels are as they are stored"}};
  if (head.rules.repair) json["quality_of_what_is_coded_anew"] = head.rules.quality;
  json["remarks"] = head.remarks;
  const Json counts = ToJson(report);
  for (const auto& [key, value] : counts.items()) json[key] = value;
  json["conversion"] = Json::parse(head.plan, nullptr, /*allow_exceptions=*/false);
  return Dump(json);
}

Result<FinishedReport> ParseReport(const std::string& text, const std::string& name) {
  const auto json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  try {
    if (!json.contains("conversion")) return FinishedReport{};
    return FinishedReport{.plan = Dump(json.at("conversion")),
                          .shards = Number(json.at("shards")),
                          .bytes = Number(json.at("bytes")),
                          .remarks = json.at("remarks").get<std::vector<std::string>>(),
                          .report = ReportFrom(json)};
  } catch (const nlohmann::json::exception& e) {
    return Fail(ErrorCode::kDataLoss, "{} is no conversion's report: {}", name, e.what());
  } catch (const Broken&) {
    return Fail(ErrorCode::kDataLoss, "{} is no conversion's report: a count is no whole number", name);
  }
}

}  // namespace imgd::data
