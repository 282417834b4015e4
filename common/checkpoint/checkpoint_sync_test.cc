// What a power cut leaves of a checkpoint: fsync() and rename() of this program take the place of libc's and
// write down the order in which they are called.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <mutex>
#include <string>
#include <vector>

#include "common/checkpoint/checkpoint.h"

namespace {

std::mutex mutex;
std::vector<std::string> calls;  ///< guarded by mutex

void WriteDown(std::string call) {
  const std::lock_guard lock(mutex);
  calls.push_back(std::move(call));
}

}  // namespace

extern "C" int fsync(int fd) {
  std::error_code unknown;
  WriteDown("sync " + std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(fd), unknown).string());
  return static_cast<int>(::syscall(SYS_fsync, fd));
}

extern "C" int rename(const char* from, const char* to) noexcept {
  WriteDown(std::string("name ") + to);
  return static_cast<int>(::syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0U));
}

namespace imgd {
namespace {

namespace fs = std::filesystem;

TEST(CheckpointOnDisk, EachFileIsSyncedBeforeItHasItsNameAndAllBeforeTheManifest) {
  std::string pattern = (fs::temp_directory_path() / "checkpoint-XXXXXX").string();
  const fs::path root = fs::canonical(::mkdtemp(pattern.data()));
  auto writer = CheckpointWriter::Begin(root, 2, 30);
  ASSERT_TRUE(writer.has_value());
  calls.clear();
  ASSERT_TRUE(writer->AddTensors("model.safetensors", {{"w", "U8", {4}, "1234"}}, {}));
  ASSERT_TRUE(writer->Add("state.json", {"{}"}));
  ASSERT_TRUE(writer->Commit());

  const std::string folder = root / "g2" / "step30";
  const std::string manifest = folder + "/manifest.json";
  EXPECT_THAT(calls, testing::ElementsAre(
                         "sync " + folder + "/model.safetensors.tmp", "name " + folder + "/model.safetensors",
                         "sync " + folder + "/state.json.tmp", "name " + folder + "/state.json",
                         "sync " + folder, "sync " + (root / "g2").string(), "sync " + root.string(),
                         "sync " + manifest + ".tmp." + std::to_string(::getpid()), "name " + manifest,
                         "sync " + folder));
  fs::remove_all(root);
}

}  // namespace
}  // namespace imgd
