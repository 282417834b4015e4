#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/format.h"
#include "cli/serialize.h"
#include "cli/words.h"
#include "common/files.h"
#include "common/sha256.h"

namespace imgd::cli {
namespace {

namespace fs = std::filesystem;
using BackupPieces = Stream<v1::BackupResponse>;

/// How long a backup may take in all; its first piece waits for the copies.
constexpr Duration kBackupLease = std::chrono::hours(6);
/// imgd looks into the folders of all jobs' checkpoints.
constexpr Duration kRetentionPatience = std::chrono::minutes(10);

/// A file that is there under its name once it is whole, for its owner's eyes only. Until then it has no
/// name, so that a kill leaves nothing either; or one with ".part", where the file system has no files
/// without.
class NewFile {
 public:
  explicit NewFile(std::string path)
      : path_(std::move(path)),
        part_(path_ + ".part"),
        folder_(fs::path(path_).has_parent_path() ? fs::path(path_).parent_path() : fs::path(".")) {}
  ~NewFile() {
    if (named_) ::unlink(part_.c_str());
  }
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  Status Open() {
    if (fs::is_directory(path_)) return tl::unexpected(Refusal("it is a folder"));
    std::error_code error;
    const auto there = fs::symlink_status(path_, error);
    if (fs::exists(there) && !fs::is_regular_file(there))
      return tl::unexpected(Refusal("it is there, and no regular file"));
    ::unlink(part_.c_str());  // of a kill
    fd_ = UniqueFd(::open(folder_.c_str(), O_WRONLY | O_TMPFILE | O_CLOEXEC, 0600));
    if (fd_.valid()) return {};
    fd_ = UniqueFd(::open(part_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (!fd_.valid()) return FailErrno(errno, "cannot create " + part_);
    named_ = true;
    return {};
  }
  Status Add(std::string_view bytes) { return WriteAll(fd_.get(), bytes, path_); }
  Status Keep() {
    if (::fsync(fd_.get()) != 0) return FailErrno(errno, "cannot sync " + path_);
    // linkat() replaces no file; rename() does.
    const auto open_file = fmt::format("/proc/self/fd/{}", fd_.get());
    if (!named_ && ::linkat(AT_FDCWD, open_file.c_str(), AT_FDCWD, part_.c_str(), AT_SYMLINK_FOLLOW) != 0)
      return FailErrno(errno, "cannot create " + part_);
    named_ = true;
    if (::rename(part_.c_str(), path_.c_str()) != 0)
      return FailErrno(errno, fmt::format("cannot rename {} to {}", part_, path_));
    named_ = false;
    const UniqueFd folder(::open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (folder.valid() && ::fsync(folder.get()) == 0) return {};
    return FailErrno(errno, "cannot sync folder " + folder_.native());
  }

 private:
  Error Refusal(std::string_view why) const {
    return {.code = ErrorCode::kInvalidArgument, .message = fmt::format("cannot write {}: {}", path_, why)};
  }

  std::string path_;
  std::string part_;
  fs::path folder_;
  UniqueFd fd_;
  bool named_ = false;  ///< the part is there
};

/// Writes all pieces into the file; returns how many bytes there were.
Reply<uint64_t> ReceiveBackup(BackupPieces& pieces, NewFile& file) {
  const auto failed = [](Error error) { return tl::unexpected(Errors{std::move(error)}); };
  if (const auto opened = file.Open(); !opened) return failed(opened.error());
  Sha256 sum;
  uint64_t bytes = 0;
  std::string expected;
  v1::BackupResponse piece;
  const Instant end = std::chrono::steady_clock::now() + kBackupLease;
  while (pieces.Next(piece, end) == BackupPieces::Outcome::kItem) {
    sum.Update(piece.chunk());
    bytes += piece.chunk().size();
    if (const auto added = file.Add(piece.chunk()); !added) return failed(added.error());
    if (!piece.sha256().empty()) expected = piece.sha256();
  }
  if (const auto finished = pieces.Finish(); !finished) return tl::unexpected(finished.error());
  if (expected != sum.Finish()) {
    return failed({.code = ErrorCode::kDataLoss,
                   .message = "what came is not the whole backup; nothing was kept of it"});
  }
  if (const auto kept = file.Keep(); !kept) return failed(kept.error());
  return bytes;
}

int RunBackup(Context& context, const std::string& path) {
  context.FollowUntilInterrupted();
  v1::BackupRequest request;
  request.set_actor(OwnerName(context.env()));
  auto client = context.client();
  if (!client) return context.Fail(client.error());
  const auto pieces = (*client)->Backup(request, kBackupLease);
  NewFile file(path);
  const auto bytes = ReceiveBackup(*pieces, file);
  if (!bytes) return context.Fail(bytes.error());
  context.out() << fmt::format("{}: imgd's state, {}\n", Printable(path), HumanBytes(*bytes));
  context.Say("the CA's key is in it: keep it as secret as that; imgd --restore FILE puts it back",
              Style::kDim);
  return 0;
}

std::string ListOf(const google::protobuf::RepeatedPtrField<std::string>& keys) {
  std::string out;
  for (const auto& key : keys) out += (out.empty() ? "" : ", ") + Printable(key);
  return out;
}

int RunReload(Context& context, OutputFormat format) {
  v1::ReloadRequest request;
  request.set_actor(OwnerName(context.env()));
  auto client = context.client();
  if (!client) return context.Fail(client.error());
  const auto answer = (*client)->Reload(request);
  if (!answer) return context.Fail(answer.error());
  if (format != OutputFormat::kTable) {
    PrintDocument(context.out(), ToJson(*answer), format);
    return 0;
  }
  context.out() << (answer->changed().empty() ? std::string("nothing is another than before\n")
                                              : fmt::format("changed: {}\n", ListOf(answer->changed())));
  if (!answer->need_restart().empty()) {
    context.Say(
        fmt::format("not changed, since only a restart of imgd takes it: {}", ListOf(answer->need_restart())),
        Style::kWarn);
  }
  return 0;
}

int RunRetention(Context& context, OutputFormat format) {
  auto client = context.client();
  if (!client) return context.Fail(client.error());
  (*client)->set_timeout(std::max<Duration>((*client)->timeout(), kRetentionPatience));
  const auto answer = (*client)->ShowRetention();
  if (!answer) return context.Fail(answer.error());
  if (format != OutputFormat::kTable) {
    PrintDocument(context.out(), ToJson(*answer), format);
    return 0;
  }
  Table table({{"WHAT"},
               {"KEPT FOR", true},
               {"AT MOST", true},
               {"THERE IS", true},
               {"WOULD GO", true},
               {"OF JOBS", true}});
  for (const auto& kind : answer->kinds()) {
    const double kept_seconds = static_cast<double>(kind.kept_for_ms()) / 1000;
    table.Add({Cell(kind.what()), Cell(kept_seconds > 0 ? HumanDuration(kept_seconds) : "ever"),
               Cell(kind.total_bytes() > 0 ? HumanBytes(kind.total_bytes()) : "any"),
               Cell(HumanBytes(kind.bytes())), Cell(HumanBytes(kind.going_bytes())),
               Cell(std::to_string(kind.going_jobs()))});
  }
  table.Print(context.out(), context.terminal());
  for (const auto& kind : answer->kinds()) {
    for (const auto& folder : kind.folders()) context.out() << "  " << Printable(folder) << "\n";
  }
  if (answer->unseen_jobs() > 0) {
    context.Say(
        fmt::format("{} that ended left no folder that imgd sees; from S3 and nodes' own disks imgcli "
                    "checkpoints prune removes what is old",
                    Count(answer->unseen_jobs(), "job")),
        Style::kDim);
  }
  return 0;
}

}  // namespace

void AddAdminCommands(Command app, Context& context) {
  Command admin =
      app.AddSubcommand("admin", "Back imgd up, have it read its configuration again, see what it keeps");
  admin.NeedsSubcommand();
  admin.Footer(
      "Examples:\n"
      "  imgcli admin backup imgd-2026-11-24.tar\n"
      "  imgcli admin reload\n"
      "  imgcli admin retention");

  auto path = std::make_shared<std::string>();
  Command backup =
      admin.AddSubcommand("backup", "Write a backup of imgd's state, while it runs, to a file here");
  backup.AddOption("FILE", *path, "Where to; it is there once it is whole, for your eyes only")
      .Required()
      .ValueName("");
  backup.Footer(
      "Jobs, nodes, tokens, figures and the CA, as they are at one moment; not the jobs' logs and "
      "checkpoints.\n"
      "imgd --restore FILE puts it back (docs/operations.md).\n\n"
      "Examples:\n  imgcli admin backup imgd-2026-11-24.tar");
  backup.Runs([&context, path] { return RunBackup(context, *path); });

  auto format = std::make_shared<OutputFormat>(OutputFormat::kTable);
  Command reload =
      admin.AddSubcommand("reload", "Have imgd read its configuration file again, as SIGHUP does");
  AddOutputOption(reload, *format, kPlainFormats);
  reload.Footer(
      "Where something in the file is wrong, each error is shown with its place and nothing changes.\n\n"
      "Examples:\n  imgcli admin reload");
  reload.Runs([&context, format] { return RunReload(context, *format); });

  auto shown = std::make_shared<OutputFormat>(OutputFormat::kTable);
  Command retention = admin.AddSubcommand(
      "retention",
      "Show how long logs, figures and checkpoints are kept, and what would go now; removes nothing");
  AddOutputOption(retention, *shown, kPlainFormats);
  retention.Footer(
      "The limits are keys of imgd.yaml (docs/operations.md, What is kept).\n\n"
      "Examples:\n  imgcli admin retention");
  retention.Runs([&context, shown] { return RunRetention(context, *shown); });
}

}  // namespace imgd::cli
