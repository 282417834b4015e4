#include "cli/weights.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <functional>

#include "common/checkpoint/torch_writer.h"
#include "common/files.h"

namespace imgd::cli {
namespace {

namespace fs = std::filesystem;
using WritePiece = std::function<Status(std::string_view)>;

Status WritePieces(const fs::path& path, const std::string& temporary,
                   const std::function<Status(const WritePiece&)>& produce) {
  const UniqueFd fd(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (!fd.valid()) return FailErrno(errno, fmt::format("cannot create {}", temporary));
  IMGD_TRY(produce([&](std::string_view piece) { return WriteAll(fd.get(), piece, temporary); }));
  if (::fsync(fd.get()) != 0) return FailErrno(errno, fmt::format("cannot sync {}", temporary));
  if (::rename(temporary.c_str(), path.c_str()) != 0)
    return FailErrno(errno, fmt::format("cannot rename {} to {}", temporary, path.native()));
  return {};
}

/// WriteFileAtomically() for what comes in pieces.
Status WritePiecesAtomically(const fs::path& path, const std::function<Status(const WritePiece&)>& produce) {
  const std::string temporary = fmt::format("{}.tmp-{}", path.native(), ::getpid());
  auto written = WritePieces(path, temporary, produce);
  if (!written) ::unlink(temporary.c_str());
  return written;
}

}  // namespace

void AddWhichWeights(Command command, WhichWeights& which) {
  command.AddFlag("--ema", which.average, "The averaged weights (the default where there are any)");
  command.AddFlag("--no-ema", which.plain, "The weights themselves, not their average");
}

Result<std::unique_ptr<Weights>> ReadWeights(const CheckpointStore& store,
                                             const CheckpointSummary& checkpoint, const WhichWeights& which) {
  const auto& ref = checkpoint.ref;
  if (which.average && which.plain)
    return Fail(ErrorCode::kInvalidArgument, "--ema and --no-ema exclude one another");
  if (which.average && !checkpoint.has_average) {
    return Fail(ErrorCode::kNotFound, "{} has no averaged weights; its job has no ema.decay",
                ref.path.native());
  }
  auto out = std::make_unique<Weights>();
  out->average = checkpoint.has_average && !which.plain;
  const char* name = out->average ? "ema.safetensors" : "model.safetensors";
  IMGD_ASSIGN(out->file, ReadCheckpointFile(store, ref, name));
  IMGD_ASSIGN(out->content, ParseSafetensors(out->file));
  const auto lineage = ReadCheckpointFile(store, ref, "lineage.json");
  if (!lineage && lineage.error().code != ErrorCode::kNotFound) return tl::unexpected(lineage.error());
  if (!lineage) return out;
  IMGD_ASSIGN(out->lineage, LineageFromJson(*lineage));
  out->lineage->is_average = out->average;
  return out;
}

Metadata MetadataOf(const Weights& weights) {
  Metadata out = weights.content.metadata;
  if (weights.lineage) out["lineage"] = ToJson(*weights.lineage);
  return out;
}

Status WriteSafetensors(const Weights& weights, const fs::path& path) {
  IMGD_ASSIGN(const std::string head, SafetensorsHead(weights.content.tensors, MetadataOf(weights)));
  return WritePiecesAtomically(path, [&](const WritePiece& write) -> Status {
    IMGD_TRY(write(head));
    for (const auto& tensor : weights.content.tensors) IMGD_TRY(write(tensor.bytes));
    return {};
  });
}

Status WriteTorch(const Weights& weights, const fs::path& path) {
  const std::string lineage = weights.lineage ? ToJson(*weights.lineage) : "";
  std::vector<std::pair<std::string, std::string_view>> extra;
  if (!lineage.empty()) extra.emplace_back("lineage.json", lineage);
  return WritePiecesAtomically(
      path, [&](const WritePiece& write) { return WriteTorchFile(weights.content.tensors, extra, write); });
}

}  // namespace imgd::cli
