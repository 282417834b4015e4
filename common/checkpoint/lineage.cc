#include "common/checkpoint/lineage.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

namespace imgd {
namespace {

using LineageJson = nlohmann::ordered_json;
constexpr int kLineageFormat = 1;

LineageJson DataJson(const Lineage::Data& data) {
  return {
      {"where", data.where}, {"images", data.images}, {"classes", data.classes}, {"checksum", data.checksum}};
}

Lineage::Data DataFrom(const LineageJson& json) {
  Lineage::Data data;
  json.at("where").get_to(data.where);
  json.at("images").get_to(data.images);
  json.at("classes").get_to(data.classes);
  json.at("checksum").get_to(data.checksum);
  return data;
}

using ModelOption = std::pair<const char*, bool JobSpec::Model::*>;
constexpr ModelOption kModelOptions[] = {{"deep_stem", &JobSpec::Model::deep_stem},
                                         {"average_shortcut", &JobSpec::Model::average_shortcut},
                                         {"blurpool", &JobSpec::Model::blurpool}};

std::string OptionKey(const char* option) { return fmt::format("model.{}", option); }

const char* WordOf(bool value) { return value ? "true" : "false"; }

/// Nothing where they don't say it.
std::optional<bool> OptionIn(const Metadata& metadata, const char* option) {
  const auto found = metadata.find(OptionKey(option));
  if (found == metadata.end() || (found->second != "true" && found->second != "false")) return std::nullopt;
  return found->second == "true";
}

constexpr const char* kMeanKey = "data.mean";
constexpr const char* kStdKey = "data.std";

/// False where they don't say it.
bool ReadChannels(const Metadata& metadata, const char* key, std::array<double, 3>& out) {
  const auto found = metadata.find(key);
  if (found == metadata.end()) return false;
  const auto json = LineageJson::parse(found->second, nullptr, false);
  if (!json.is_array() || json.size() != out.size()) return false;
  for (size_t c = 0; c < out.size(); ++c) {
    if (!json[c].is_number()) return false;
    out[c] = json[c].get<double>();
  }
  return true;
}

}  // namespace

std::string ToJson(const Lineage& lineage) {
  LineageJson json = {{"format", kLineageFormat},
                      {"job", {{"id", lineage.job_id}, {"name", lineage.job}}},
                      {"generation", lineage.generation},
                      {"step", lineage.step},
                      {"epoch", lineage.epoch},
                      {"world_size", lineage.world_size},
                      {"model",
                       {{"name", lineage.model},
                        {"classes", lineage.classes},
                        {"deep_stem", lineage.deep_stem},
                        {"average_shortcut", lineage.average_shortcut},
                        {"blurpool", lineage.blurpool}}},
                      {"is_average", lineage.is_average},
                      {"data",
                       {{"train", DataJson(lineage.train)},
                        {"mean", lineage.normalisation.mean},
                        {"std", lineage.normalisation.std}}},
                      {"program",
                       {{"name", "imgtrain"},
                        {"version", lineage.version},
                        {"commit", lineage.commit},
                        {"libtorch", lineage.torch}}},
                      {"resumed_from", lineage.resumed_from},
                      {"written_us", lineage.written_us},
                      {"settings", lineage.settings},
                      {"configuration", lineage.configuration}};
  if (lineage.val) json["data"]["val"] = DataJson(*lineage.val);
  // Paths need not be UTF-8.
  return json.dump(2, ' ', false, LineageJson::error_handler_t::replace) + "\n";
}

Result<Lineage> LineageFromJson(std::string_view text) {
  const LineageJson json = LineageJson::parse(text, nullptr, false);
  if (!json.is_object() || json.value("format", LineageJson()) != kLineageFormat) {
    return Fail(ErrorCode::kDataLoss, "lineage.json is not of format {}", kLineageFormat);
  }
  try {
    Lineage out;
    json.at("job").at("id").get_to(out.job_id);
    json.at("job").at("name").get_to(out.job);
    json.at("generation").get_to(out.generation);
    json.at("step").get_to(out.step);
    json.at("epoch").get_to(out.epoch);
    json.at("world_size").get_to(out.world_size);
    const auto& model = json.at("model");
    model.at("name").get_to(out.model);
    model.at("classes").get_to(out.classes);
    model.at("deep_stem").get_to(out.deep_stem);
    model.at("average_shortcut").get_to(out.average_shortcut);
    model.at("blurpool").get_to(out.blurpool);
    json.at("is_average").get_to(out.is_average);
    out.train = DataFrom(json.at("data").at("train"));
    // Older ones had no other than ImageNet's.
    if (json.at("data").contains("mean")) json.at("data").at("mean").get_to(out.normalisation.mean);
    if (json.at("data").contains("std")) json.at("data").at("std").get_to(out.normalisation.std);
    if (json.at("data").contains("val")) out.val = DataFrom(json.at("data").at("val"));
    const auto& program = json.at("program");
    program.at("version").get_to(out.version);
    program.at("commit").get_to(out.commit);
    program.at("libtorch").get_to(out.torch);
    json.at("resumed_from").get_to(out.resumed_from);
    json.at("written_us").get_to(out.written_us);
    json.at("settings").get_to(out.settings);
    json.at("configuration").get_to(out.configuration);
    return out;
  } catch (const LineageJson::exception& e) {
    return Fail(ErrorCode::kDataLoss, "lineage.json: {}", e.what());
  }
}

Metadata ModelMetadata(const JobSpec::Model& model) {
  Metadata out = {{"model", model.name}};
  for (const auto& [option, member] : kModelOptions) out[OptionKey(option)] = WordOf(model.*member);
  return out;
}

Metadata ModelMetadata(const Lineage& lineage) {
  JobSpec::Model model;
  model.name = lineage.model;
  model.deep_stem = lineage.deep_stem;
  model.average_shortcut = lineage.average_shortcut;
  model.blurpool = lineage.blurpool;
  Metadata out = ModelMetadata(model);
  out.merge(NormalisationMetadata(lineage.normalisation));
  return out;
}

Metadata NormalisationMetadata(const JobSpec::Normalisation& by) {
  const auto list = [](const std::array<double, 3>& values) {
    return fmt::format("[{}, {}, {}]", values[0], values[1], values[2]);
  };
  return {{kMeanKey, list(by.mean)}, {kStdKey, list(by.std)}};
}

std::optional<JobSpec::Normalisation> NormalisationIn(const Metadata& metadata) {
  JobSpec::Normalisation out;
  if (!ReadChannels(metadata, kMeanKey, out.mean) || !ReadChannels(metadata, kStdKey, out.std))
    return std::nullopt;
  const bool divides = std::all_of(out.std.begin(), out.std.end(), [](double value) { return value > 0; });
  return divides ? std::optional(out) : std::nullopt;
}

std::string ModelYaml(const Metadata& metadata) {
  const auto name = metadata.find("model");
  const auto& known = ModelNames();
  if (name == metadata.end() || std::find(known.begin(), known.end(), name->second) == known.end()) return "";
  std::string out = fmt::format("model: {{name: {}", name->second);
  // The options are ResNets' alone; a job of another family that names one is refused.
  for (const auto& [option, member] : kModelOptions) {
    if (OptionIn(metadata, option).value_or(false)) out += fmt::format(", {}: true", option);
  }
  return out + "}\n";
}

Status CheckModel(const Metadata& metadata, const JobSpec::Model& model) {
  const auto name = metadata.find("model");
  if (name != metadata.end() && name->second != model.name) {
    return Fail(ErrorCode::kInvalidArgument, "it is of {}, and the model is {}", name->second, model.name);
  }
  for (const auto& [option, member] : kModelOptions) {
    const auto said = OptionIn(metadata, option);
    if (!said || *said == model.*member) continue;
    return Fail(ErrorCode::kInvalidArgument, "it was trained with model.{}: {}, and the model has {}", option,
                WordOf(*said), WordOf(model.*member));
  }
  return {};
}

}  // namespace imgd
