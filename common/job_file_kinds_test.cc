#include <gmock/gmock.h>

#include "common/job_file.h"

namespace imgd {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;

JobSpec Read(const std::string& text) {
  auto spec = ParseJobFile(text, "job.yaml");
  EXPECT_TRUE(spec.has_value()) << (spec ? "" : spec.error().front().ToString());
  return spec ? std::move(*spec) : JobSpec{};
}

/// All errors of the file, each on its line.
std::string ErrorsOfFile(const std::string& text) {
  const auto spec = ParseJobFile(text, "job.yaml");
  std::string out;
  if (spec) return out;
  for (const auto& error : spec.error()) out += error.ToString() + "\n";
  return out;
}

TEST(JobKinds, AFileWithoutOneIsOfTraining) {
  EXPECT_EQ(Read("name: a\ndata: {train: /x}\n").kind, JobKind::kTraining);
  EXPECT_THAT(ErrorsOfFile("name: a\n"), HasSubstr("data.train: missing"));
}

TEST(JobKinds, ACommandIsAListOfWordsOrATextForTheShell) {
  const auto list = Read(
      "name: a\ncommand: {run: [torchrun, train.py, --lr, 0.1], per: node, env: {LR: 0.1, HOST: b}, dir: "
      "/code}\n"
      "resources: {nodes: 2, gpu: {count: 8}}\n");
  EXPECT_EQ(list.kind, JobKind::kCommand);
  EXPECT_THAT(list.command.run, ElementsAre("torchrun", "train.py", "--lr", "0.1"));
  EXPECT_TRUE(list.command.per_node);
  EXPECT_THAT(list.command.env, ElementsAre(Pair("HOST", "b"), Pair("LR", "0.1")));
  EXPECT_EQ(list.command.dir, "/code");
  const auto text = Read("name: a\ncommand: {run: 'cd /code && make | tee log'}\n");
  EXPECT_THAT(text.command.run, ElementsAre("/bin/sh", "-c", "cd /code && make | tee log"));
  EXPECT_FALSE(text.command.per_node);
}

TEST(JobKinds, AConversionHasTheOptionsOfImgcli) {
  const auto spec = Read(
      "name: a\nconvert:\n  source: /data/archives\n  target: /data/shards\n  from: ilsvrc2012\n  to: "
      "webdataset\n"
      "  index: restart\n  shard_size: 256MB\n  classes: [n01, n02]\n  boxes: [/a.tar, /b.tar]\n  jobs: 4\n"
      "  repair: false\n  strict: true\n  register: imagenet\n");
  EXPECT_EQ(spec.kind, JobKind::kConversion);
  EXPECT_EQ(spec.convert.source, "/data/archives");
  EXPECT_EQ(spec.convert.target, "/data/shards");
  EXPECT_EQ(spec.convert.registers, "imagenet");
  EXPECT_THAT(spec.convert.options,
              ElementsAre("--from=ilsvrc2012", "--to=webdataset", "--index=restart", "--shard-size=256MB",
                          "--classes=n01,n02", "--boxes=/a.tar", "--boxes=/b.tar", "--jobs=4", "--no-repair",
                          "--strict", "--verify"));
  EXPECT_EQ(Read("name: a\nconvert: {source: 'http://host/set', target: /x, repair: true}\n")
                .convert.options.size(),
            0u);
  EXPECT_THAT(
      Read("name: a\nconvert: {source: /x, target: /y, register: z, verify: false}\n").convert.options,
      IsEmpty());
  EXPECT_THAT(Read("name: a\nconvert: {source: /x, target: /y, verify: true}\n").convert.options,
              ElementsAre("--verify"));
}

TEST(JobKinds, WhatAllJobsHaveIsAllowedBesideThem) {
  const auto spec = Read(
      "name: a\ncommand: {run: [x]}\nproject: p\npriority: 3\ngrace: 3s\nmax_restarts: 1\npreemptible: "
      "false\n"
      "time_limit: 1h\nafter: [3]\nnot_before: 1h\nabout: {title: t}\nresources: {nodes: {min: 1, max: 3}}\n"
      "checkpoint: {dir: /shared}\nsweep: {grid: {command.env.LR: [0.1, 0.2]}}\n");
  EXPECT_EQ(spec.checkpoint.dir, "/shared");
  EXPECT_EQ(spec.resources.max_nodes, 3);
  EXPECT_TRUE(spec.sweep.has_value());
}

TEST(JobKinds, WhatIsWrongIsNamedAtItsPlace) {
  const struct {
    const char* text;
    const char* error;
  } kTable[] = {
      // Of a command.
      {"command: {}",
       "job.yaml:2:10: command.run: missing; a list, the program and its arguments, or a text"},
      {"command: {run: []}", "command.run: missing"},
      {"command: {run: ['']}", "command.run: missing"},
      {"command: {run: [a, [b]]}", "command.run: found a list in the list where text is expected"},
      {"command: {run: [\"a\\0b\"]}", "command.run: has a zero byte"},
      {"command: {run: [a], per: gpu}", "command.per: found 'gpu'; allowed: rank, node"},
      {"command: {run: [a], dir: here}", "command.dir: 'here' is relative"},
      {"command: {run: [a], env: {RANK: 1}}", "command.env.RANK: is set by imgd"},
      {"command: {run: [a], env: {IMGD_X: 1}}", "command.env.IMGD_X: is set by imgd"},
      {"command: {run: [a], env: {1A: 1}}", "command.env.1A: is no name of a variable"},
      {"command: {run: [a], rum: b}", "unknown key (did you mean 'run'?)"},
      {"command: ls", "command: found 'ls' where a mapping (key: value) is expected"},
      // Of a conversion.
      {"convert: {target: /x}", "convert.source: missing"},
      {"convert: {source: /x}", "convert.target: missing"},
      {"convert: {source: x, target: /y}", "convert.source: 'x' is relative"},
      {"convert: {source: /x, target: 's3://b/y'}", "convert.target: 's3://b/y' is relative"},
      {"convert: {source: /x, target: /y, to: tfrecords}",
       "convert.to: found 'tfrecords'; allowed: webdataset"},
      {"convert: {source: /x, target: /y, quality: 101}",
       "convert.quality: found '101' where a whole number"},
      {"convert: {source: /x, target: /y, register: My Set}",
       "convert.register: found 'My Set'; a name of 1 to 63"},
      {"convert: {source: /x, target: /y}\nresources: {nodes: 2}",
       "resources: a conversion is one process; found up to 2"},
      {"convert: {source: /x, target: /y, register: a}\nsweep: {grid: {convert.resize: [1, 2]}}",
       "convert.register: one name can't be for all jobs of a sweep"},
      // Of both.
      {"command: {run: [a]}\nconvert: {source: /x, target: /y}", "job.yaml:3:10: convert: a job is either"},
      {"command: {run: [a]}\ndata: {train: /x}",
       "job.yaml:3:7: data: is of training, and this job is a command (name, project, priority, resources, "
       "time_limit, grace, max_restarts, preemptible, after, not_before, secrets, notify, sweep, about and "
       "checkpoint.dir are allowed beside it)"},
      {"command: {run: [a]}\nlimits: {step: 5s}", "limits: is of training"},
      {"command: {run: [a]}\nseed: 3", "seed: is of training"},
      {"convert: {source: /x, target: /y}\nmodel: {name: resnet18}",
       "model: is of training, and this job is a conversion"},
      {"command: {run: [a]}\ncheckpoint: {every_epochs: 3}",
       "checkpoint.every_epochs: is of training; checkpoint.dir"},
      {"command: {run: [a]}\nsweep: {grid: {command.env.A: [1]}, halving: {first: 1}}",
       "sweep.halving: compares figures of training"},
  };
  for (const auto& row : kTable)
    EXPECT_THAT(ErrorsOfFile(fmt::format("name: a\n{}\n", row.text)), HasSubstr(row.error)) << row.text;
}

TEST(JobKinds, OneErrorIsToldOnce) {
  const std::string errors = ErrorsOfFile("name: a\ncommand: {run: [a]}\ntrain: {epochs: 0}\n");
  EXPECT_EQ(std::count(errors.begin(), errors.end(), '\n'), 1) << errors;
}

}  // namespace
}  // namespace imgd
