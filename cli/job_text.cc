#include "cli/job_text.h"

#include "cli/recipes.h"
#include "common/dataset_ref.h"
#include "common/files.h"
#include "common/job_changes.h"
#include "common/url.h"
#include "common/utf8.h"
#include "common/yaml.h"

namespace imgd::cli {
namespace {

Reply<std::string> ReadText(const std::string& file, std::istream& in) {
  if (file.starts_with(kRecipeScheme)) {
    const auto recipe = FindRecipe(std::string_view(file).substr(kRecipeScheme.size()));
    if (!recipe) return tl::unexpected(Errors{recipe.error()});
    return std::string(recipe->yaml);
  }
  if (file != "-") {
    auto content = ReadFile(file, kMaxJobFileBytes);
    if (!content) return tl::unexpected(Errors{std::move(content).error()});
    return std::move(*content);
  }
  std::string text(kMaxJobFileBytes + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(in.gcount()));
  if (text.size() > kMaxJobFileBytes) {
    return tl::unexpected(
        Errors{Error{.code = ErrorCode::kInvalidArgument,
                     .message = fmt::format("has more than the {} bytes that are allowed", kMaxJobFileBytes),
                     .file = "stdin"}});
  }
  return text;
}

/// A job runs in a folder of its own on another machine, where a relative path names nothing.
Errors CheckDataPaths(const std::string& text, const JobSpec& spec, const std::string& file) {
  auto root = YamlMap::Parse(text, file);
  if (!root) return {root.error()};
  auto data = root->Child("data");
  const auto is_same_everywhere = [](const std::string& path) {
    return path.empty() || path.front() == '/' || IsUrl(path) || ParseDatasetRef(path);
  };
  const auto check = [&](const char* key, const std::string& path) {
    if (is_same_everywhere(path)) return;
    data.AddError(key, fmt::format("'{}' is relative; nodes need an absolute path", path));
  };
  check("train", spec.data.train);
  check("val", spec.data.val);
  if (!spec.model.init_from.empty() && spec.model.init_from.front() != '/') {
    root->Child("model").AddError(
        "init_from", fmt::format("'{}' is relative; nodes need an absolute path", spec.model.init_from));
  }
  for (auto& phase : root->Children("phases")) {
    const std::string path = phase.String("train").value_or("");
    if (is_same_everywhere(path)) continue;
    phase.AddError("train", fmt::format("'{}' is relative; nodes need an absolute path", path));
  }
  return data.Errors();
}

Errors CheckText(JobText& text) {
  const auto spec = ParseJobFile(text.yaml, text.file);
  if (!spec) return spec.error();
  if (spec->sweep) text.jobs = spec->sweep->Members();
  return CheckDataPaths(text.yaml, *spec, text.file);
}

}  // namespace

std::string YamlText(const std::string& text) {
  YAML::Emitter out;
  out << YAML::DoubleQuoted << text;
  return out.c_str();
}

Reply<JobText> ReadJobText(const std::string& file, std::istream& in, const std::vector<std::string>& sets,
                           const std::optional<std::string>& name, const std::vector<JobChange>& more) {
  auto read = ReadText(file, in);
  if (!read) return tl::unexpected(std::move(read).error());
  return ChangeJobTextOf(*read, file == "-" ? "stdin" : ToUtf8(file), sets, name, more);
}

Reply<JobText> ChangeJobTextOf(const std::string& read, const std::string& file,
                               const std::vector<std::string>& sets, const std::optional<std::string>& name,
                               const std::vector<JobChange>& more) {
  auto changes = JobChangesOf(sets);
  changes.insert(changes.end(), more.begin(), more.end());
  if (name) {
    // Quoted, so that a name is never taken for a number, a list or nothing.
    changes.push_back({.assignment = "name=" + YamlText(*name), .shown = fmt::format("--name {}", *name)});
  }
  JobText text{.yaml = read, .file = file, .read = read};
  auto changed = ChangeJobText(read, text.file, changes);
  if (!changed) return tl::unexpected(Errors{std::move(changed).error()});
  text.yaml = std::move(*changed);
  auto errors = CheckText(text);
  if (changes.empty()) {
    if (!errors.empty()) return tl::unexpected(std::move(errors));
    return text;
  }
  if (!errors.empty()) return tl::unexpected(PlaceJobErrors(std::move(errors), read, text.file, changes));
  text.changes = std::move(changes);
  return text;
}

Errors PlaceErrors(Errors errors, const JobText& text) {
  if (text.changes.empty()) return errors;
  for (auto& error : errors) {
    if (error.line == 0 || error.file != text.file) continue;
    error = PlaceJobErrors({std::move(error)}, text.read, text.file, text.changes).front();
  }
  return errors;
}

}  // namespace imgd::cli
