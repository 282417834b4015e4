#include "agent/program.h"

#include <unistd.h>

#include <cstdlib>
#include <optional>
#include <system_error>

#include "common/job_file.h"
#include "common/url.h"

namespace imgd {
namespace {

namespace fs = std::filesystem;

bool CanRun(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error) && ::access(path.c_str(), X_OK) == 0;
}

std::optional<fs::path> FindIn(std::string_view folders, std::string_view name) {
  while (!folders.empty()) {
    const size_t end = std::min(folders.find(':'), folders.size());
    const fs::path folder = end == 0 ? fs::path(".") : fs::path(folders.substr(0, end));
    if (CanRun(folder / name)) return folder / name;
    folders.remove_prefix(std::min(end + 1, folders.size()));
  }
  return std::nullopt;
}

Result<RunProgram> Conversion(const JobSpec::Convert& convert, fs::path converter) {
  if (converter.empty()) converter = FindProgram("imgcli");
  if (converter.empty())
    return Fail(ErrorCode::kNotFound, "no imgcli beside {} or in PATH, which converts data sets",
                OwnProgram().native());
  RunProgram program;
  program.arguments = {fs::absolute(converter).native(), "dataset", "convert"};
  program.arguments.insert(program.arguments.end(), convert.options.begin(), convert.options.end());
  program.arguments.push_back(convert.source);
  program.arguments.push_back(convert.target);
  return program;
}

}  // namespace

fs::path OwnProgram() {
  std::error_code error;
  return fs::read_symlink("/proc/self/exe", error);
}

fs::path FindProgram(std::string_view name) {
  const fs::path beside = OwnProgram().parent_path() / name;
  if (CanRun(beside)) return beside;
  const char* folders = std::getenv("PATH");
  return FindIn(folders != nullptr ? folders : "", name).value_or(fs::path());
}

Result<RunProgram> ProgramOf(v1::JobKind kind, const std::string& job_yaml, const fs::path& converter) {
  if (kind == v1::JOB_KIND_UNSPECIFIED || kind == v1::JOB_KIND_TRAINING) return RunProgram{};
  auto spec = ParseJobFile(job_yaml, "job.yaml");
  if (!spec) return tl::unexpected(std::move(spec).error().front());
  if (static_cast<int>(spec->kind) != static_cast<int>(kind))
    return Fail(ErrorCode::kInvalidArgument, "the job file is of a {}, not of what is to be started",
                NameOf(spec->kind));
  if (spec->kind == JobKind::kConversion) return Conversion(spec->convert, converter);
  RunProgram program{.arguments = std::move(spec->command.run),
                     .environment = std::move(spec->command.env),
                     .dir = std::move(spec->command.dir),
                     .per_node = spec->command.per_node,
                     .own_folder = true};
  return program;
}

std::string FolderOfProgram(const std::string& checkpoint_dir, const RunProgram& program) {
  if (program.dir.empty() && program.own_folder && !IsUrl(checkpoint_dir)) return checkpoint_dir;
  return program.dir;
}

Status PrepareFolders(const std::string& checkpoint_dir, const RunProgram& program) {
  std::error_code error;
  if (program.own_folder && !IsUrl(checkpoint_dir)) {
    fs::create_directories(checkpoint_dir, error);
    if (error) {
      auto failure = FailErrno(error.value(), fmt::format("cannot make the job's folder {}", checkpoint_dir));
      if (failure.value().code == ErrorCode::kPermissionDenied)
        failure.value().hint = "name a checkpoint.dir that the ranks' user on this node may write to";
      return failure;
    }
  }
  const std::string folder = FolderOfProgram(checkpoint_dir, program);
  if (!folder.empty() && !fs::is_directory(folder, error))
    return Fail(ErrorCode::kNotFound, "command.dir: there is no folder {} on this node", folder);
  return {};
}

Result<std::string> ResolveProgram(const std::string& name, const std::vector<std::string>& environment) {
  if (name.find('/') != std::string::npos) return name;
  constexpr std::string_view kPath = "PATH=";
  std::string_view folders = "/usr/local/bin:/usr/bin:/bin";
  for (const auto& entry : environment) {
    if (entry.starts_with(kPath)) folders = std::string_view(entry).substr(kPath.size());
  }
  if (const auto found = FindIn(folders, name)) return found->native();
  return Fail(ErrorCode::kNotFound, "there is no program '{}' in PATH ({}) on this node", name, folders);
}

}  // namespace imgd
