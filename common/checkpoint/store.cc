#include "common/checkpoint/store.h"

#include <nlohmann/json.hpp>

#include "common/checkpoint/s3_checkpoints.h"
#include "common/files.h"
#include "common/sha256.h"

namespace imgd {
namespace {

namespace fs = std::filesystem;
using ListedJson = nlohmann::json;

/// Nothing where the path does not end with g<n>/step<n>.
std::optional<CheckpointRef> RefOf(const fs::path& folder) {
  const auto step = NumberIn(folder.filename(), "step");
  const auto generation = NumberIn(folder.parent_path().filename(), "g");
  if (!step || !generation) return std::nullopt;
  return CheckpointRef{folder, *generation, *step};
}

struct ResumeFile {
  std::vector<CheckpointRef> accepted;  ///< complete or not
  uint64_t last_generation = 0;
};

Result<ResumeFile> ReadResumeFile(const fs::path& path) {
  IMGD_ASSIGN(const std::string text, ReadFile(path));
  const auto json = ListedJson::parse(text, nullptr, false);
  const auto bad = [&](std::string_view what) {
    return Fail(ErrorCode::kInvalidArgument, "{}: {}", path.native(), what);
  };
  if (!json.is_object()) return bad("a JSON object is expected");
  ResumeFile out;
  if (json.contains("last_generation")) {
    if (!json["last_generation"].is_number_unsigned()) return bad("last_generation: a number is expected");
    out.last_generation = json["last_generation"].get<uint64_t>();
  }
  if (!json.contains("accepted")) return out;
  if (!json["accepted"].is_array()) return bad("accepted: a list of folders is expected");
  for (const auto& item : json["accepted"]) {
    if (!item.is_string()) return bad("accepted: a list of folders is expected");
    const fs::path folder = item.get<std::string>();
    auto ref = RefOf(folder);
    if (!ref) return bad(fmt::format("accepted: '{}' is no g<n>/step<n> folder", folder.native()));
    out.accepted.push_back(std::move(*ref));
  }
  return out;
}

std::string PathOf(const CheckpointRef& ref, const std::string& name) { return (ref.path / name).native(); }

/// The files that it lists.
Result<ListedJson> ReadManifest(const CheckpointStore& store, const CheckpointRef& ref) {
  IMGD_ASSIGN(const std::string text, store.Read(ref, kCheckpointManifest));
  auto json = ListedJson::parse(text, nullptr, false);
  const ListedJson format = json.is_object() ? json.value("format", ListedJson()) : ListedJson();
  if (format.is_number_integer() && format > kCheckpointFormat) {
    return Fail(ErrorCode::kDataLoss,
                "{}: it is of format {}, which a newer imgtrain wrote; this one reads format {}",
                PathOf(ref, kCheckpointManifest), format.dump(), kCheckpointFormat);
  }
  if (format != kCheckpointFormat || !json.contains("files")) {
    return Fail(ErrorCode::kDataLoss, "{}: not a manifest of this format", PathOf(ref, kCheckpointManifest));
  }
  return json["files"];
}

/// Null where they don't have it.
const ListedJson* EntryOf(const ListedJson& files, const std::string& name) {
  for (const auto& file : files) {
    if (file.is_object() && file.value("name", ListedJson()) == name) return &file;
  }
  return nullptr;
}

Result<std::string> ReadListed(const CheckpointStore& store, const CheckpointRef& ref,
                               const ListedJson& files, const std::string& name) {
  const auto* entry = EntryOf(files, name);
  if (entry == nullptr) {
    return Fail(ErrorCode::kNotFound, "{}: it does not list {}", PathOf(ref, kCheckpointManifest), name);
  }
  IMGD_ASSIGN(std::string content, store.Read(ref, name));
  if (entry->value("size", ListedJson()) != content.size() ||
      entry->value("sha256", ListedJson()) != Sha256Of(content)) {
    return Fail(ErrorCode::kDataLoss, "{}: its {} bytes are not those that the manifest lists",
                PathOf(ref, name), content.size());
  }
  return content;
}

}  // namespace

bool IsInS3(const fs::path& root) { return root.native().starts_with("s3://"); }

Result<std::shared_ptr<CheckpointStore>> OpenCheckpoints(const fs::path& root, const fs::path& staging,
                                                         const GetVariable& env) {
  if (!IsInS3(root)) return std::make_shared<LocalCheckpoints>(root);
  HttpOptions http = HttpOptionsFrom(env);
  // A bucket is far away, and what goes up is large; a run would rather wait than end.
  http.stall = Milliseconds(30'000);
  http.patience = Milliseconds(120'000);
  IMGD_ASSIGN(auto folder, S3Folder::Open(root.native(), env, std::move(http)));
  return std::make_shared<S3Checkpoints>(std::move(folder), staging);
}

Result<CheckpointRef> CheckpointAt(const CheckpointStore& store, const fs::path& folder) {
  auto ref = RefOf(folder);
  if (!ref) return Fail(ErrorCode::kNotFound, "{} is no g<n>/step<n> folder", folder.native());
  IMGD_ASSIGN(const bool complete, store.IsComplete(folder));
  if (complete) return std::move(*ref);
  return Fail(ErrorCode::kNotFound, "{} has no {}, so it is no complete checkpoint", folder.native(),
              kCheckpointManifest);
}

Result<std::vector<CheckpointRef>> ResumeCandidates(const CheckpointStore& store,
                                                    const std::optional<fs::path>& resume_file) {
  if (!resume_file) {
    IMGD_ASSIGN(auto all, store.List());
    return std::move(all.complete);
  }
  IMGD_ASSIGN(ResumeFile resume, ReadResumeFile(*resume_file));
  std::vector<CheckpointRef> out;
  for (auto& ref : resume.accepted) {
    IMGD_ASSIGN(const bool complete, store.IsComplete(ref.path));
    if (complete) out.push_back(std::move(ref));
  }
  if (resume.last_generation > 0) {
    IMGD_ASSIGN(const auto all, store.List());
    for (const auto& ref : all.complete) {
      if (ref.generation == resume.last_generation) out.push_back(ref);
    }
  }
  NewestFirst(out);
  return out;
}

Result<std::string> ReadCheckpointFile(const CheckpointStore& store, const CheckpointRef& ref,
                                       const std::string& name) {
  IMGD_ASSIGN(const auto files, ReadManifest(store, ref));
  return ReadListed(store, ref, files, name);
}

Result<CheckpointContent> ReadCheckpoint(const CheckpointStore& store, const CheckpointRef& ref) {
  IMGD_ASSIGN(const auto files, ReadManifest(store, ref));
  CheckpointContent out;
  struct Wanted {
    const char* name;
    std::string* content;
    bool optional = false;
  };
  const Wanted all[] = {{"model.safetensors", &out.model},
                        {"optimizer.safetensors", &out.optimizer},
                        {"ema.safetensors", &out.average, true},
                        {"state.json", &out.state}};
  for (const auto& [name, content, optional] : all) {
    if (optional && EntryOf(files, name) == nullptr) continue;
    IMGD_ASSIGN(*content, ReadListed(store, ref, files, name));
  }
  return out;
}

}  // namespace imgd
