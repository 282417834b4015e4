#include <fmt/format.h>
#include <gmock/gmock.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "cli/testing/fake_daemon.h"
#include "cli/testing/run_cli.h"
#include "common/files.h"

namespace imgd::cli {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

v1::JobEvent ProfileEvent(uint32_t rank, const fs::path& trace) {
  v1::JobEvent event;
  event.mutable_profile()->set_rank(rank);
  event.mutable_profile()->set_step(13);
  event.mutable_profile()->set_trace(trace.native());
  event.mutable_profile()->set_table(fmt::format("table of rank {}\n", rank));
  return event;
}

/// A job of two ranks, of which one answers a request with its profile.
class Profile : public testing::Test {
 protected:
  Profile() {
    std::string pattern = (fs::temp_directory_path() / "profile-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
    std::ofstream(folder_ / "trace") << "{}";
    daemon_.PutJob(MakeJob(12, "rn18-demo", v1::JOB_STATE_RUNNING));
    daemon_.AddEvent(12, ProfileEvent(1, "/an/earlier/one"));
    daemon_.on_profile = [this](const v1::ProfileJobRequest& request) -> Reply<v1::ProfileJobResponse> {
      asked_ = request;
      v1::ProfileJobResponse response;
      response.set_node("gpu-01");
      return response;
    };
  }
  ~Profile() override { fs::remove_all(folder_); }

  FakeDaemon daemon_;
  fs::path folder_;
  v1::ProfileJobRequest asked_;
};

TEST_F(Profile, ShowsTheTableOfTheRankThatWasAskedAndCopiesItsTrace) {
  CliProcess process(CallTo(daemon_.address(), {"profile", "12", "--rank", "1", "--steps", "3", "-o",
                                                (folder_ / "copy").native()}));
  daemon_.AwaitStreams(1);
  EXPECT_EQ(asked_.rank(), 1U);
  EXPECT_EQ(asked_.steps(), 3U);
  daemon_.AddEvent(12, ProfileEvent(0, "/of/another/rank"));
  daemon_.AddEvent(12, ProfileEvent(1, folder_ / "trace"));
  EXPECT_EQ(process.Wait(), 0);
  EXPECT_THAT(process.out.text(), HasSubstr("table of rank 1\n"));
  EXPECT_THAT(process.out.text(), testing::Not(HasSubstr("table of rank 0")));
  EXPECT_EQ(ReadFile(folder_ / "copy").value_or("?"), "{}");
}

TEST_F(Profile, ATraceThatIsNotSeenFromHereIsNamed) {
  CliProcess process(
      CallTo(daemon_.address(), {"profile", "12", "--rank", "1", "-o", (folder_ / "copy").native()}));
  daemon_.AwaitStreams(1);
  daemon_.AddEvent(12, ProfileEvent(1, "/on/another/node/trace"));
  EXPECT_EQ(process.Wait(), 3);
  EXPECT_THAT(process.out.text(), HasSubstr("table of rank 1\n"));
  EXPECT_THAT(process.err.text(), HasSubstr("cannot copy /on/another/node/trace"));
}

TEST_F(Profile, AJobThatEndsMeanwhileLeavesNoneToWaitFor) {
  CliProcess process(CallTo(daemon_.address(), {"profile", "12"}));
  daemon_.AwaitStreams(1);
  daemon_.AddEvent(12,
                   StateEvent(v1::JOB_STATE_RUNNING, v1::JOB_STATE_COMPLETED, "trained to the last step"));
  EXPECT_EQ(process.Wait(), 5);
  EXPECT_THAT(process.err.text(), HasSubstr("is COMPLETED now, and no profile came"));
}

}  // namespace
}  // namespace imgd::cli
