#include "agent/run_dir.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <nlohmann/json.hpp>

#include "common/files.h"

namespace imgd {
namespace {

using nlohmann::json;

constexpr const char* kRanksFolder = "ranks";
constexpr std::array<const char*, 4> kRankStates = {"pending", "running", "exited", "lost"};
constexpr std::array<const char*, 4> kPhases = {"starting", "running", "stopping", "gone"};

template <typename Enum, size_t N>
Enum FromName(const std::array<const char*, N>& names, const std::string& name) {
  for (size_t i = 0; i < N; ++i) {
    if (name == names[i]) return static_cast<Enum>(i);
  }
  throw json::other_error::create(501, "unknown word '" + name + "'", nullptr);
}

json RankToJson(const RankRecord& rank) {
  return {{"rank", rank.rank},
          {"state", kRankStates[static_cast<size_t>(rank.state)]},
          {"pid", rank.pid},
          {"start_time", rank.start_time},
          {"exit_code", rank.exit_code},
          {"signal", rank.signal},
          {"told", rank.told},
          {"last_error_line", rank.last_error_line},
          {"last_lines", rank.last_lines},
          {"lines", rank.lines}};
}

RankRecord RankFromJson(const json& in) {
  RankRecord rank;
  rank.rank = in.at("rank").get<uint32_t>();
  rank.state = FromName<RankState>(kRankStates, in.at("state").get<std::string>());
  rank.pid = in.at("pid").get<int64_t>();
  rank.start_time = in.at("start_time").get<uint64_t>();
  rank.exit_code = in.at("exit_code").get<int>();
  rank.signal = in.at("signal").get<int>();
  rank.last_error_line = in.at("last_error_line").get<std::string>();
  // A shim of an earlier version does not tell these two.
  rank.told = in.value("told", false);
  rank.last_lines = in.value("last_lines", std::vector<std::string>());
  rank.lines = in.at("lines").get<uint64_t>();
  return rank;
}

json UserToJson(const UnixUser& user) {
  if (!user.given()) return nullptr;
  return {{"name", user.name},
          {"uid", user.uid},
          {"gid", user.gid},
          {"groups", user.groups},
          {"home", user.home}};
}

/// What an older agent wrote has none.
UnixUser UserFromJson(const json& in) {
  if (in.is_null()) return {};
  return {.name = in.at("name").get<std::string>(),
          .uid = in.at("uid").get<uint32_t>(),
          .gid = in.at("gid").get<uint32_t>(),
          .groups = in.at("groups").get<std::vector<uint32_t>>(),
          .home = in.at("home").get<std::string>()};
}

json PathsToJson(const VisiblePaths& paths) {
  if (!paths.limited) return nullptr;
  return {{"read", paths.read}, {"write", paths.write}};
}

VisiblePaths PathsFromJson(const json& in) {
  if (in.is_null()) return {};
  return {.limited = true,
          .read = in.at("read").get<std::vector<std::string>>(),
          .write = in.at("write").get<std::vector<std::string>>()};
}

/// Calls `read` with the parsed text and turns the library's exceptions into one Error.
template <typename T, typename Read>
Result<T> ReadJson(std::string_view text, std::string_view what, Read read) {
  try {
    return read(json::parse(text));
  } catch (const json::exception& e) {
    return Fail(ErrorCode::kDataLoss, "{} is damaged: {}", what, e.what());
  }
}

Status WriteNewFile(const std::filesystem::path& path, std::string_view content) {
  const UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0640));
  if (!fd.valid()) return FailErrno(errno, fmt::format("cannot create {}", path.native()));
  return WriteAll(fd.get(), content, path.native());
}

/// Lets the user through the run's folder, read what is for the ranks, and have a folder of his own in it, in
/// which what he makes is of the agent's group.
Status ShareWith(const UnixUser& user, const RunDir& dir) {
  const auto failed = [&](const std::filesystem::path& path) {
    return FailErrno(errno, fmt::format("cannot give {} to user {}", path.native(), user.name));
  };
  for (const auto& path : {dir.JobYaml(), dir.Resume()}) {
    if (::chown(path.c_str(), static_cast<uid_t>(-1), user.gid) != 0 || ::chmod(path.c_str(), 0640) != 0)
      return failed(path);
  }
  const auto ranks = dir.path / kRanksFolder;
  // The bit first: nobody may set it on what is another's.
  if (::mkdir(ranks.c_str(), 0700) != 0 || ::chmod(ranks.c_str(), 02770) != 0 ||
      ::chown(ranks.c_str(), user.uid, static_cast<gid_t>(-1)) != 0)
    return failed(ranks);
  return ::chmod(dir.path.c_str(), 0711) == 0 ? Status() : failed(dir.path);
}

}  // namespace

std::string RunKey::ToString() const { return fmt::format("{}-{}", job, generation); }

std::string RunKey::FolderName() const {
  return cluster.empty() ? ToString() : fmt::format("{}-{}", ToString(), cluster);
}

std::filesystem::path RunDir::Ranks() const {
  std::error_code none;
  auto ranks = path / kRanksFolder;
  return std::filesystem::is_directory(ranks, none) ? ranks : path;
}

std::filesystem::path RunDir::Events(uint32_t local_rank) const {
  return Ranks() / fmt::format("events.{}", local_rank);
}

std::string ControlSocket(uint32_t local_rank) { return fmt::format("control.{}", local_rank); }

std::string ToJson(const RunSpec& spec) {
  const json out = {{"cluster_id", spec.key.cluster},
                    {"job_id", spec.key.job.value()},
                    {"generation", spec.key.generation.value()},
                    {"job_name", spec.job_name},
                    {"trainer", spec.trainer},
                    {"program", spec.program.arguments},
                    {"environment", spec.program.environment},
                    {"dir", spec.program.dir},
                    {"per_node", spec.program.per_node},
                    {"own_folder", spec.program.own_folder},
                    {"first_rank", spec.first_rank},
                    {"local_world_size", spec.local_world_size},
                    {"world_size", spec.world_size},
                    {"node_rank", spec.node_rank},
                    {"node_count", spec.node_count},
                    {"devices", spec.devices},
                    {"visible_devices", spec.visible_devices},
                    {"master_address", spec.master_address},
                    {"master_port", spec.master_port},
                    {"host_address", spec.host_address},
                    {"interface", spec.interface},
                    {"checkpoint_dir", spec.checkpoint_dir},
                    {"secrets", spec.secrets},
                    {"secrets_dir", spec.secrets_dir},
                    {"user", UserToJson(spec.user)},
                    {"paths", PathsToJson(spec.paths)},
                    {"grace_ms", spec.grace_ms},
                    {"log_limit_bytes", spec.log_limit_bytes},
                    {"use_cgroup", spec.use_cgroup}};
  return out.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

Result<RunSpec> ParseRunSpec(std::string_view text) {
  return ReadJson<RunSpec>(text, "run.json", [](const json& in) {
    RunSpec spec;
    spec.key.cluster = in.at("cluster_id").get<std::string>();
    spec.key.job = JobId(in.at("job_id").get<uint64_t>());
    spec.key.generation = Generation(in.at("generation").get<uint64_t>());
    spec.job_name = in.at("job_name").get<std::string>();
    spec.trainer = in.at("trainer").get<std::string>();
    // An older agent wrote none of these.
    spec.program.arguments = in.value("program", std::vector<std::string>());
    spec.program.environment = in.value("environment", std::map<std::string, std::string>());
    spec.program.dir = in.value("dir", "");
    spec.program.per_node = in.value("per_node", false);
    spec.program.own_folder = in.value("own_folder", false);
    spec.node_count = in.value("node_count", 1U);
    spec.secrets = in.value("secrets", std::vector<std::string>());
    spec.secrets_dir = in.value("secrets_dir", "");
    spec.user = UserFromJson(in.value("user", json()));
    spec.paths = PathsFromJson(in.value("paths", json()));
    spec.first_rank = in.at("first_rank").get<uint32_t>();
    spec.local_world_size = in.at("local_world_size").get<uint32_t>();
    spec.world_size = in.at("world_size").get<uint32_t>();
    spec.node_rank = in.at("node_rank").get<uint32_t>();
    spec.devices = in.at("devices").get<std::vector<uint32_t>>();
    spec.visible_devices = in.at("visible_devices").get<std::string>();
    spec.master_address = in.at("master_address").get<std::string>();
    spec.master_port = in.at("master_port").get<uint32_t>();
    spec.host_address = in.at("host_address").get<std::string>();
    spec.interface = in.at("interface").get<std::string>();
    spec.checkpoint_dir = in.at("checkpoint_dir").get<std::string>();
    spec.grace_ms = in.at("grace_ms").get<int64_t>();
    spec.log_limit_bytes = in.at("log_limit_bytes").get<uint64_t>();
    spec.use_cgroup = in.at("use_cgroup").get<bool>();
    return spec;
  });
}

std::string ToJson(const RunRecord& record) {
  json ranks = json::array();
  for (const auto& rank : record.ranks) ranks.push_back(RankToJson(rank));
  const json out = {{"version", record.version},
                    {"shim_pid", record.shim_pid},
                    {"shim_start_time", record.shim_start_time},
                    {"boot_id", record.boot_id},
                    {"phase", kPhases[static_cast<size_t>(record.phase)]},
                    {"start_error", record.start_error},
                    {"cgroup", record.cgroup},
                    {"ranks", std::move(ranks)}};
  return out.dump(-1, ' ', false, json::error_handler_t::replace);
}

Result<RunRecord> ParseRunRecord(std::string_view text) {
  return ReadJson<RunRecord>(text, "status.json", [](const json& in) {
    RunRecord record;
    record.version = in.value("version", "");
    record.shim_pid = in.at("shim_pid").get<int64_t>();
    record.shim_start_time = in.at("shim_start_time").get<uint64_t>();
    record.boot_id = in.at("boot_id").get<std::string>();
    record.phase = FromName<ShimPhase>(kPhases, in.at("phase").get<std::string>());
    record.start_error = in.at("start_error").get<std::string>();
    record.cgroup = in.at("cgroup").get<std::string>();
    for (const auto& rank : in.at("ranks")) record.ranks.push_back(RankFromJson(rank));
    return record;
  });
}

Result<RunSpec> LoadRunSpec(const RunDir& dir) {
  IMGD_ASSIGN(const std::string text, ReadFile(dir.Spec()));
  auto spec = ParseRunSpec(text);
  if (!spec) spec.error().file = dir.Spec();
  return spec;
}

Result<std::optional<RunRecord>> LoadRunRecord(const RunDir& dir) {
  auto text = ReadFile(dir.Record());
  if (!text && text.error().code == ErrorCode::kNotFound) return std::nullopt;
  if (!text) return tl::unexpected(std::move(text).error());
  auto record = ParseRunRecord(*text);
  if (!record) {
    record.error().file = dir.Record();
    return tl::unexpected(std::move(record).error());
  }
  return std::move(*record);
}

Status SaveRunRecord(const RunDir& dir, const RunRecord& record) {
  const auto temporary = dir.path / "status.json.tmp";
  auto written = WriteNewFile(temporary, ToJson(record) + "\n");
  if (written && ::rename(temporary.c_str(), dir.Record().c_str()) != 0) {
    written = FailErrno(errno, fmt::format("cannot replace {}", dir.Record().native()));
  }
  if (!written) ::unlink(temporary.c_str());
  return written;
}

Result<RunDir> CreateRunDir(const std::filesystem::path& runs, const RunSpec& spec, std::string_view job_yaml,
                            const std::vector<std::string>& resume_from, Generation last_generation) {
  const RunDir fresh{runs / (".new-" + spec.key.FolderName())};
  const RunDir final_dir{runs / spec.key.FolderName()};
  std::error_code ignored;
  std::filesystem::remove_all(fresh.path, ignored);
  const json resume = {{"accepted", resume_from}, {"last_generation", last_generation.value()}};
  const auto fill = [&]() -> Status {
    if (::mkdir(fresh.path.c_str(), 0750) != 0) {
      return FailErrno(errno, fmt::format("cannot create folder {}", fresh.path.native()));
    }
    IMGD_TRY(WriteNewFile(fresh.JobYaml(), job_yaml));
    IMGD_TRY(WriteNewFile(fresh.Resume(), resume.dump(2, ' ', false, json::error_handler_t::replace) + "\n"));
    IMGD_TRY(WriteNewFile(fresh.Spec(), ToJson(spec)));
    if (spec.user.given()) IMGD_TRY(ShareWith(spec.user, fresh));
    if (::rename(fresh.path.c_str(), final_dir.path.c_str()) != 0) {
      return FailErrno(errno, fmt::format("cannot create folder {}", final_dir.path.native()));
    }
    return {};
  };
  if (auto filled = fill(); !filled) {
    std::filesystem::remove_all(fresh.path, ignored);
    return tl::unexpected(std::move(filled).error());
  }
  return final_dir;
}

}  // namespace imgd
