#include "cli/model_registry.h"

#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <nlohmann/json.hpp>

#include "common/files.h"
#include "common/sha256.h"
#include "common/text.h"

namespace imgd::cli {
namespace {

namespace fs = std::filesystem;
using VersionJson = nlohmann::ordered_json;

constexpr const char* kWeightsFile = "model.safetensors";
constexpr const char* kLineageFile = "lineage.json";
constexpr const char* kVersionFile = "version.json";
constexpr int kMostTries = 100;  ///< at a number that others take at the same time

/// The number of "v12".
std::optional<uint64_t> VersionIn(std::string_view text) {
  uint64_t value = 0;
  if (!text.starts_with('v')) return std::nullopt;
  const auto [end, error] = std::from_chars(text.data() + 1, text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value == 0) return std::nullopt;
  return value;
}

std::string VersionText(const ModelVersion& version) {
  VersionJson json = {{"format", 1},
                      {"name", version.name},
                      {"model", version.model},
                      {"is_average", version.is_average},
                      {"checkpoint", version.checkpoint},
                      {"note", version.note},
                      {"promoted_by", version.promoted_by},
                      {"promoted_us", version.promoted_us},
                      {"size_bytes", version.size_bytes},
                      {"sha256", version.sha256}};
  if (version.score) {
    json["validation"] = {{"top1", version.score->top1},
                          {"top5", version.score->top5},
                          {"loss", version.score->loss},
                          {"images", version.score->images}};
  }
  return json.dump(2, ' ', false, VersionJson::error_handler_t::replace) + "\n";
}

Result<ModelVersion> ReadVersion(const fs::path& path, const std::string& name, uint64_t number) {
  IMGD_ASSIGN(const std::string text, ReadFile(path / kVersionFile));
  ModelVersion out{.name = name, .version = number, .path = path};
  try {
    const auto json = VersionJson::parse(text);
    json.at("model").get_to(out.model);
    json.at("is_average").get_to(out.is_average);
    json.at("checkpoint").get_to(out.checkpoint);
    json.at("note").get_to(out.note);
    json.at("promoted_by").get_to(out.promoted_by);
    json.at("promoted_us").get_to(out.promoted_us);
    json.at("size_bytes").get_to(out.size_bytes);
    json.at("sha256").get_to(out.sha256);
    if (json.contains("validation")) {
      const auto& score = json["validation"];
      out.score.emplace();
      score.at("top1").get_to(out.score->top1);
      score.at("top5").get_to(out.score->top5);
      score.at("loss").get_to(out.score->loss);
      score.at("images").get_to(out.score->images);
    }
  } catch (const VersionJson::exception& e) {
    return Fail(ErrorCode::kDataLoss, "{}: {}", (path / kVersionFile).native(), e.what());
  }
  return out;
}

/// Newest first; none where the model has no folder.
Result<std::vector<uint64_t>> VersionsOf(const fs::path& model) {
  std::vector<uint64_t> out;
  std::error_code error;
  for (fs::directory_iterator it(model, error), end; !error && it != end; it.increment(error)) {
    if (const auto number = VersionIn(it->path().filename().native())) out.push_back(*number);
  }
  if (error && error.value() != ENOENT)
    return FailErrno(error.value(), fmt::format("cannot list {}", model.native()));
  std::sort(out.rbegin(), out.rend());
  return out;
}

Status FillFolder(const fs::path& folder, ModelVersion& version, const Weights& weights) {
  IMGD_TRY(MakeFolders(folder));
  IMGD_TRY(WriteSafetensors(weights, folder / kWeightsFile));
  IMGD_ASSIGN(const std::string written, ReadFile(folder / kWeightsFile));
  version.size_bytes = written.size();
  version.sha256 = Sha256Of(written);
  if (weights.lineage) IMGD_TRY(WriteFileAtomically(folder / kLineageFile, ToJson(*weights.lineage)));
  return WriteFileAtomically(folder / kVersionFile, VersionText(version));
}

/// Gives the complete folder the next free number.
Result<uint64_t> TakeNumber(const fs::path& folder, const fs::path& model) {
  for (int i = 0; i < kMostTries; ++i) {
    IMGD_ASSIGN(const auto known, VersionsOf(model));
    const uint64_t number = known.empty() ? 1 : known.front() + 1;
    const fs::path path = model / fmt::format("v{}", number);
    // Fails where another process has taken the number: its folder is not empty.
    if (::rename(folder.c_str(), path.c_str()) == 0) return number;
    if (errno != ENOTEMPTY && errno != EEXIST)
      return FailErrno(errno, fmt::format("cannot rename {} to {}", folder.native(), path.native()));
  }
  return Fail(ErrorCode::kUnavailable, "others promote to {} all the time", model.native());
}

}  // namespace

Reply<fs::path> ResolveRegistry(const std::string& flag, const Environment& env) {
  if (!flag.empty()) return flag;
  if (const auto variable = env("IMGD_MODELS"); !variable.empty()) return variable;
  const auto configured = ModelsInConfig(env);
  if (!configured) return tl::unexpected(configured.error());
  if (!configured->empty()) return *configured;
  return tl::unexpected(
      Errors{{.code = ErrorCode::kInvalidArgument,
              .message = "nothing says which folder the registry is",
              .hint = "give --registry DIR, set IMGD_MODELS, or write models: in " +
                      (UserConfigPath(env).empty() ? "the configuration file" : UserConfigPath(env))}});
}

Result<ModelVersion> PromoteModel(const fs::path& registry, const ModelVersion& what,
                                  const Weights& weights) {
  if (!IsName(what.name)) {
    return Fail(ErrorCode::kInvalidArgument,
                "found '{}' where a name is expected: 1 to 63 letters, digits, '.', '_' or '-', the first a "
                "letter, digit or '_'",
                what.name);
  }
  ModelVersion version = what;
  version.is_average = weights.average;
  const fs::path model = registry / version.name;
  const fs::path folder = model / fmt::format(".new-{}", ::getpid());
  auto filled = FillFolder(folder, version, weights);
  auto number = filled ? TakeNumber(folder, model) : tl::unexpected(filled.error());
  if (!number) {
    std::error_code ignored;
    fs::remove_all(folder, ignored);
    return tl::unexpected(number.error());
  }
  version.version = *number;
  version.path = model / fmt::format("v{}", *number);
  IMGD_TRY(SyncFolder(model));
  return version;
}

Result<std::vector<ModelVersion>> ListModels(const fs::path& registry) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(registry, error), end; !error && it != end; it.increment(error)) {
    if (IsName(it->path().filename().native()) && it->is_directory()) names.push_back(it->path().filename());
  }
  if (error) return FailErrno(error.value(), fmt::format("cannot list the registry {}", registry.native()));
  std::sort(names.begin(), names.end());
  std::vector<ModelVersion> out;
  for (const auto& name : names) {
    IMGD_ASSIGN(const auto versions, VersionsOf(registry / name));
    for (const uint64_t number : versions) {
      auto version = ReadVersion(registry / name / fmt::format("v{}", number), name, number);
      if (version) out.push_back(std::move(*version));
    }
  }
  return out;
}

Result<ModelVersion> FindModel(const fs::path& registry, const std::string& reference) {
  const auto colon = reference.find(':');
  const std::string name = reference.substr(0, colon);
  if (!IsName(name)) return Fail(ErrorCode::kNotFound, "no model can be called '{}'", name);
  IMGD_ASSIGN(const auto versions, VersionsOf(registry / name));
  if (versions.empty()) {
    return Fail(ErrorCode::kNotFound, "there is no model '{}' in {}", name, registry.native());
  }
  uint64_t number = versions.front();
  if (colon != std::string::npos) {
    const auto wanted = VersionIn(reference.substr(colon + 1));
    if (!wanted || std::find(versions.begin(), versions.end(), *wanted) == versions.end()) {
      return Fail(ErrorCode::kNotFound, "{} has no version '{}'; it has v{}", name,
                  reference.substr(colon + 1), fmt::join(versions, ", v"));
    }
    number = *wanted;
  }
  return ReadVersion(registry / name / fmt::format("v{}", number), name, number);
}

Result<std::string> LineageOfModel(const ModelVersion& version) {
  auto text = ReadFile(version.path / kLineageFile);
  if (!text && text.error().code == ErrorCode::kNotFound) return std::string();
  return text;
}

}  // namespace imgd::cli
