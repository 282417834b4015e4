#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "cli/job_text.h"
#include "cli/testing/fake_daemon.h"
#include "cli/testing/run_cli.h"
#include "cli/words.h"
#include "common/files.h"

namespace imgd::cli {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr const char* kGood = "name: rn18-demo  # ours\ndata:\n  train: /data/train\nresources: {nodes: 2}\n";

class Submit : public testing::Test {
 protected:
  Submit() : file_(testing::TempDir() + fmt::format("imgcli-job-{}.yaml", ::getpid())) {
    WriteJob(kGood);
    daemon_.on_submit = [](const v1::SubmitJobRequest& request) -> Reply<v1::SubmitJobResponse> {
      v1::SubmitJobResponse answer;
      *answer.mutable_job() = MakeJob(request.dry_run() ? 0 : 12, "rn18-demo", v1::JOB_STATE_QUEUED);
      return answer;
    };
  }

  void WriteJob(const std::string& text) { ASSERT_TRUE(WriteFileAtomically(file_, text)); }

  CliResult RunSubmit(std::vector<std::string> arguments = {}, std::string input = "") {
    arguments.insert(arguments.begin(), "submit");
    auto call = CallTo(daemon_.address(), std::move(arguments));
    call.input = std::move(input);
    return RunCli(call);
  }

  std::string file_;
  FakeDaemon daemon_;
};

TEST_F(Submit, SendsTheFileAsItIsAndSaysWhatToDoNext) {
  const auto done = RunSubmit({file_});
  EXPECT_EQ(done.exit_code, 0);
  EXPECT_EQ(done.out, "job 12 (rn18-demo) submitted\n");
  EXPECT_THAT(done.err, AllOf(HasSubstr("imgcli --server"), HasSubstr("watch 12"), HasSubstr("cancel 12")));
  ASSERT_EQ(daemon_.submits().size(), 1u);
  EXPECT_EQ(daemon_.submits()[0].job_yaml(), kGood);
  EXPECT_EQ(daemon_.submits()[0].file_name(), file_);
  EXPECT_EQ(daemon_.submits()[0].owner(), "lena");
}

TEST_F(Submit, ARelativeFileOfWeightsIsRefusedToo) {
  WriteJob(std::string(kGood) + "model: {init_from: r50.pth}\n");
  const auto done = RunSubmit({file_});
  EXPECT_EQ(done.exit_code, 2);
  EXPECT_THAT(done.err, HasSubstr("model.init_from: 'r50.pth' is relative"));
}

TEST_F(Submit, ARecipeNeedsItsDataAlone) {
  EXPECT_THAT(RunSubmit({"recipe:rn50-90ep"}).err, HasSubstr("data.train: missing"));
  const auto done = RunSubmit({"recipe:rn50-90ep", "--set", "data.train=/data/train"});
  EXPECT_EQ(done.exit_code, 0) << done.err;
  ASSERT_EQ(daemon_.submits().size(), 1u);
  EXPECT_THAT(daemon_.submits()[0].job_yaml(), HasSubstr("/data/train"));
  EXPECT_THAT(RunSubmit({"recipe:rn50"}).err, HasSubstr("no recipe 'rn50'"));
}

TEST_F(Submit, TwoInvocationsHaveTwoKeysAndTheUsersOwnIsKept) {
  RunSubmit({file_});
  RunSubmit({file_});
  RunSubmit({file_, "--idempotency-key", "nightly"});
  const auto sent = daemon_.submits();
  ASSERT_EQ(sent.size(), 3u);
  EXPECT_THAT(sent[0].idempotency_key(), Not(IsEmpty()));
  EXPECT_NE(sent[0].idempotency_key(), sent[1].idempotency_key());
  EXPECT_EQ(sent[2].idempotency_key(), "nightly");
}

TEST_F(Submit, EveryErrorOfTheFileIsPrintedWithItsPlaceAndNothingIsSent) {
  WriteJob("name: a b\ndata:\n  train: /x\n  imge_size: 64\ntrain: {epochs: none}\n");
  const auto done = RunSubmit({file_});
  EXPECT_EQ(done.exit_code, 2);
  EXPECT_THAT(Lines(done.err),
              ElementsAre(HasSubstr(file_ + ":1:7: name: found 'a b'"),
                          file_ + ":4:3: data.imge_size: unknown key (did you mean 'image_size'?)",
                          HasSubstr(file_ + ":5:17: train.epochs: found 'none'")));
  EXPECT_THAT(done.out, IsEmpty());
  EXPECT_EQ(daemon_.submits().size(), 0u);
}

TEST_F(Submit, ARelativeDataFolderIsRefusedBecauseNodesRunElsewhere) {
  WriteJob("name: a\ndata:\n  train: images/train\n");
  const auto done = RunSubmit({file_});
  EXPECT_EQ(done.exit_code, 2);
  EXPECT_EQ(done.err, file_ + ":3:10: data.train: 'images/train' is relative; nodes need an absolute path\n");
}

TEST_F(Submit, AMissingFileIsNotFound) {
  const auto done = RunSubmit({"/nowhere/job.yaml"});
  EXPECT_EQ(done.exit_code, 3);
  EXPECT_THAT(done.err, HasSubstr("/nowhere/job.yaml"));
}

TEST_F(Submit, TheFileMayComeFromStandardInput) {
  EXPECT_EQ(RunSubmit({"-"}, kGood).exit_code, 0);
  EXPECT_EQ(daemon_.submits()[0].job_yaml(), kGood);
  EXPECT_THAT(RunSubmit({"-"}, "nam: x\n").err,
              HasSubstr("stdin:1:1: nam: unknown key (did you mean 'name'?)"));
}

TEST_F(Submit, SetAndNameChangeTheJob) {
  const auto done =
      RunSubmit({"--set", "train.epochs=5", file_, "--set", "optimizer.lr=0.4", "--name", "rn18-short"});
  EXPECT_EQ(done.exit_code, 0) << done.err;
  EXPECT_THAT(daemon_.submits()[0].job_yaml(),
              AllOf(HasSubstr("epochs: 5"), HasSubstr("lr: 0.4"), HasSubstr("name: rn18-short")));
}

TEST_F(Submit, AnErrorOfASetNamesTheSetAndOneOfTheFileItsLine) {
  WriteJob("name: a\ndata:\n  train: /x\n  imge_size: 64\n");
  const auto done = RunSubmit({file_, "--set", "train.epohcs=5"});
  EXPECT_EQ(done.exit_code, 2);
  EXPECT_THAT(Lines(done.err),
              testing::UnorderedElementsAre(
                  HasSubstr(file_ + ":4:"),
                  "--set train.epohcs=5: train.epohcs: unknown key (did you mean 'epochs'?)"));
}

TEST_F(Submit, WhatTheDaemonRefusesOfASetNamesTheSetAndOfTheFileItsLine) {
  daemon_.on_submit = [](const v1::SubmitJobRequest& request) -> Reply<v1::SubmitJobResponse> {
    const auto at = [&request](int line, const std::string& message) {
      return Error{.code = ErrorCode::kInvalidArgument,
                   .message = message,
                   .file = request.file_name(),
                   .line = line,
                   .column = 13};
    };
    return tl::unexpected(Errors{at(7, "time_limit: is 9m, and at most 5m is allowed by policy caps"),
                                 at(1, "data.train: is '/data/train', and /sets/* is allowed by policy caps"),
                                 at(0, "data.val: no node has it")});
  };
  WriteJob("# ours\n\nname: a\ndata:\n  train: /data/train\n");
  const auto done = RunSubmit({file_, "--set", "time_limit=9m"});
  EXPECT_EQ(done.exit_code, 2);
  EXPECT_THAT(
      Lines(done.err),
      ElementsAre("--set time_limit=9m: time_limit: is 9m, and at most 5m is allowed by policy caps",
                  file_ + ":5:10: data.train: is '/data/train', and /sets/* is allowed by policy caps",
                  file_ + ": data.val: no node has it"));
  EXPECT_THAT(Lines(RunSubmit({file_}).err).front(), HasSubstr(file_ + ":7:13: time_limit: is 9m"))
      << "its lines are those of the file that was sent as it is";
}

TEST_F(Submit, ASetThatIsNoneSaysHowOneLooks) {
  const auto done = RunSubmit({file_, "--set", "epochs"});
  EXPECT_EQ(done.exit_code, 2);
  EXPECT_THAT(done.err, HasSubstr("PATH=VALUE is expected"));
}

TEST_F(Submit, AnErrorOfTheNameNamesTheOptionThatGaveIt) {
  EXPECT_THAT(RunSubmit({file_, "--name", "x/y"}).err, testing::StartsWith("--name x/y: name: found 'x/y'"));
  const auto empty = RunSubmit({file_, "--name", ""});
  EXPECT_EQ(empty.exit_code, 2);
  EXPECT_THAT(empty.err, HasSubstr("name: found ''"));
  EXPECT_EQ(RunSubmit({file_, "--name", "123"}).exit_code, 0);
}

TEST_F(Submit, NamesOfFilesAndUsersMayBeAnyBytes) {
  const std::string odd = testing::TempDir() + fmt::format("imgcli-caf\xE9-{}.yaml", ::getpid());
  ASSERT_TRUE(WriteFileAtomically(odd, kGood));
  auto call = CallTo(daemon_.address(), {"submit", odd});
  call.env["USER"] = "caf\xE9";
  const auto done = RunCli(call);
  std::filesystem::remove(odd);
  EXPECT_EQ(done.exit_code, 0) << done.err;
  ASSERT_EQ(daemon_.submits().size(), 1u);
  EXPECT_EQ(daemon_.submits()[0].owner(), "caf\xEF\xBF\xBD");
  EXPECT_THAT(daemon_.submits()[0].file_name(), HasSubstr("caf\xEF\xBF\xBD"));
}

TEST_F(Submit, OtherBytesThatAreNoUtf8AreBadInputWithTheirPlace) {
  WriteJob("name: a\ndata: {train: \"/x\xFF/y\"}\n");
  const auto file = RunSubmit({file_});
  EXPECT_EQ(file.exit_code, 2);
  EXPECT_THAT(file.err, HasSubstr(file_ + ":2:18: found the byte 0xFF, which is no UTF-8"));
  WriteJob(kGood);
  EXPECT_EQ(RunSubmit({file_, "--set", "data.train=/\xFF"}).exit_code, 2);
  EXPECT_EQ(RunSubmit({file_, "--name", "\xFF"}).exit_code, 2);
  EXPECT_EQ(RunSubmit({file_, "--idempotency-key", "\xFF"}).exit_code, 2);
  EXPECT_EQ(RunCli(CallTo(daemon_.address(), {"show", "\xFF"})).exit_code, 3);
  EXPECT_EQ(daemon_.submits().size(), 0u);
}

TEST_F(Submit, AFolderAndAFileWithoutEndAreBadInput) {
  const auto folder = RunSubmit({testing::TempDir()});
  EXPECT_EQ(folder.exit_code, 2);
  EXPECT_THAT(folder.err, HasSubstr("is a folder where a file is expected"));
  const auto endless = RunSubmit({"/dev/zero"});
  EXPECT_EQ(endless.exit_code, 2);
  EXPECT_THAT(endless.err, HasSubstr("/dev/zero has more than the 1048576 bytes"));
  EXPECT_THAT(RunSubmit({"-"}, std::string(3 << 20, 'x')).err, HasSubstr("stdin: has more than"));
}

TEST_F(Submit, ErrorsOfTheDaemonLookLikeLocalOnes) {
  daemon_.on_submit = [](const auto&) -> Reply<v1::SubmitJobResponse> {
    return tl::unexpected(
        Errors{Error{.code = ErrorCode::kInvalidArgument,
                     .message = "data.train: no such folder",
                     .file = "job.yaml",
                     .line = 3,
                     .column = 10,
                     .hint = "is it mounted?"},
               Error{.code = ErrorCode::kInvalidArgument, .message = "checkpoints are not shared"}});
  };
  const auto done = RunSubmit({file_});
  EXPECT_EQ(done.exit_code, 2);
  EXPECT_THAT(Lines(done.err), ElementsAre("job.yaml:3:10: data.train: no such folder (is it mounted?)",
                                           "error: checkpoints are not shared"));
}

TEST_F(Submit, AFullDiskIsARefusal) {
  daemon_.on_submit = [](const auto&) -> Reply<v1::SubmitJobResponse> {
    return tl::unexpected(Errors{Error{.code = ErrorCode::kResourceExhausted, .message = "No space left"}});
  };
  EXPECT_EQ(RunSubmit({file_}).exit_code, 5);
}

TEST_F(Submit, ARestartOfTheDaemonNeitherDoublesNorLosesTheJob) {
  daemon_.Stop();
  CliProcess process(CallTo(daemon_.address(), {"submit", file_}));
  process.err.WaitFor("does not answer");
  daemon_.Start();
  EXPECT_EQ(process.Wait(), 0) << process.err.text();
  EXPECT_EQ(process.out.text(), "job 12 (rn18-demo) submitted\n");
}

TEST_F(Submit, ACancelByNameIsAskedAgainToo) {
  v1::Job job;
  job.set_id(3);
  job.set_name("rn50");
  job.set_state(v1::JOB_STATE_RUNNING);
  daemon_.PutJob(job);
  daemon_.Stop();
  CliProcess process(CallTo(daemon_.address(), {"cancel", "rn50"}));
  process.err.WaitFor("does not answer");
  daemon_.Start();
  EXPECT_EQ(process.Wait(), 0) << process.err.text();
  EXPECT_EQ(daemon_.cancels().size(), 1U);
}

TEST_F(Submit, ARestartThatTakesAWhileIsMetWithinTheDefaultTimeout) {
  daemon_.Stop();
  CliProcess process(CallTo(daemon_.address(), {"submit", file_}));
  // One connection after the other breaks; all of them are tried long before the 10 s are over.
  ASSERT_TRUE(BreakOffConnections(daemon_.address(), 5)) << process.err.text();
  daemon_.Start();
  EXPECT_EQ(process.Wait(), 0) << process.err.text();
}

TEST_F(Submit, ALostAnswerIsAskedForAgainWithTheSameKey) {
  int calls = 0;
  daemon_.on_submit = [&calls](const auto&) -> Reply<v1::SubmitJobResponse> {
    ++calls;
    if (calls == 1)
      return tl::unexpected(Errors{Error{.code = ErrorCode::kUnavailable, .message = "restarts"}});
    if (calls == 2) return tl::unexpected(Errors{Error{.code = ErrorCode::kCancelled}});
    v1::SubmitJobResponse answer;
    *answer.mutable_job() = MakeJob(12, "rn18-demo", v1::JOB_STATE_QUEUED);
    answer.set_existed(true);
    return answer;
  };
  const auto done = RunSubmit({file_});
  EXPECT_EQ(done.exit_code, 0);
  const auto sent = daemon_.submits();
  ASSERT_EQ(sent.size(), 3u);
  EXPECT_EQ(sent[0].idempotency_key(), sent[2].idempotency_key());
}

TEST_F(Submit, GivingUpNamesTheAddressWhereItCameFromAndTheKey) {
  daemon_.Stop();
  const auto done = RunSubmit({file_, "--timeout", "300ms"});
  EXPECT_EQ(done.exit_code, 4);
  EXPECT_THAT(Lines(done.err).back(), AllOf(HasSubstr(daemon_.address()), HasSubstr("from --server"),
                                            HasSubstr("--idempotency-key imgcli-")));
}

TEST_F(Submit, ADryRunStoresNothingAndSaysSo) {
  const auto done = RunSubmit({file_, "--dry-run"});
  EXPECT_EQ(done.exit_code, 0);
  EXPECT_EQ(done.out, "rn18-demo is fine; nothing was submitted (it needs 2 nodes with 1 rank each)\n");
  EXPECT_TRUE(daemon_.submits()[0].dry_run());
}

TEST_F(Submit, ADryRunSaysWhatItWouldWaitForAndWhenItWouldStart) {
  auto job = MakeJob(0, "rn18-demo", v1::JOB_STATE_QUEUED);
  v1::SubmitJobResponse answer;
  daemon_.on_submit = [&](const auto&) -> Reply<v1::SubmitJobResponse> {
    *answer.mutable_job() = job;
    return answer;
  };
  const std::string fine = "rn18-demo is fine; nothing was submitted (it needs 2 nodes with 1 rank each)\n";
  job.set_reason(v1::REASON_CODE_WAITS_FOR_DEVICES);
  job.set_reason_text("it would wait: needs 2 nodes with 1 free device each; 1 is free");
  EXPECT_EQ(RunSubmit({file_, "--dry-run"}).out, fine + job.reason_text() + "\n") << "nobody knows when";
  job.set_expected_start_us(NowMicros() + int64_t{2400} * 1'000'000);
  EXPECT_THAT(RunSubmit({file_, "--dry-run"}).out,
              HasSubstr(fine + job.reason_text() + "\nit would probably start in about 40 min, at "));
  auto* before = job.add_after();
  before->set_job_id(22);
  before->set_job_name("pre");
  before->set_when(v1::AFTER_END_FAILED);
  EXPECT_THAT(RunSubmit({file_, "--dry-run"}).out,
              HasSubstr(fine + "it would wait for job 22 (pre) to fail\n"));
  before->set_ended(v1::JOB_STATE_FAILED);
  EXPECT_THAT(RunSubmit({file_, "--dry-run"}).out, HasSubstr(fine + job.reason_text())) << "it need not";
  job.clear_after();
  answer.mutable_sweep()->set_name("rn18-demo");
  answer.mutable_sweep()->set_members(3);
  EXPECT_THAT(RunSubmit({file_, "--dry-run"}).out,
              AllOf(HasSubstr("\nits first job: it would wait: needs 2 nodes"),
                    HasSubstr("\nits first job: it would probably start in about 40 min, at ")));
  answer.clear_sweep();
  job.set_reason(v1::REASON_CODE_PLACED);
  job.set_reason_text("it would start at once, on a, b");
  EXPECT_EQ(RunSubmit({file_, "--dry-run"}).out, fine + "it would start at once, on a, b\n");
}

TEST_F(Submit, ADryRunOfWhatCannotStartSaysThatTheFileIsFineAndThenThat) {
  daemon_.on_submit = [](const auto&) -> Reply<v1::SubmitJobResponse> {
    v1::SubmitJobResponse answer;
    auto& job = *answer.mutable_job();
    job = MakeJob(0, "rn18-demo", v1::JOB_STATE_QUEUED);
    job.set_not_before_us(NowMicros() - 1'000'000);
    job.set_reason(v1::REASON_CODE_NEVER_FITS);
    job.set_reason_text("it could not start on the cluster as it is: needs 9 nodes");
    answer.set_cannot_start(true);
    return answer;
  };
  const auto text = RunSubmit({file_, "--dry-run"});
  EXPECT_EQ(text.exit_code, 0) << "the file can be submitted";
  EXPECT_EQ(text.out,
            "rn18-demo is fine; nothing was submitted (it needs 2 nodes with 1 rank each)\n"
            "it could not start on the cluster as it is: needs 9 nodes\n")
      << "a time that is past holds nothing back";
  const auto dry = nlohmann::json::parse(RunSubmit({file_, "--dry-run", "-o", "json"}).out);
  EXPECT_EQ(dry["cannot_start"], true);
  EXPECT_FALSE(nlohmann::json::parse(RunSubmit({file_, "-o", "json"}).out).contains("cannot_start"));
}

TEST_F(Submit, JsonIsTheJobWithItsWarnings) {
  daemon_.on_submit = [](const auto&) -> Reply<v1::SubmitJobResponse> {
    v1::SubmitJobResponse answer;
    *answer.mutable_job() = MakeJob(12, "rn18-demo", v1::JOB_STATE_QUEUED);
    answer.add_warnings("checkpoints go to one node");
    return answer;
  };
  const auto done = RunSubmit({file_, "-o", "json"});
  EXPECT_THAT(done.out, AllOf(HasSubstr("\n  \"id\": \"12\""), HasSubstr("checkpoints go to one node"),
                              HasSubstr("\"existed\": false")));
  EXPECT_THAT(RunSubmit({file_}).err, HasSubstr("warning: checkpoints go to one node"));
}

}  // namespace
}  // namespace imgd::cli
