#include "server/policy/policy.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <filesystem>

#include "common/dataset_ref.h"
#include "common/files.h"

namespace imgd {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::SizeIs;

Policies Read(const std::string& text) {
  auto root = YamlMap::Parse(text, "imgd.yaml");
  EXPECT_TRUE(root);
  auto policies = ReadPolicies(*root);
  root->Finish();
  for (const auto& error : root->Errors()) ADD_FAILURE() << error.ToString();
  return policies;
}

std::vector<std::string> ErrorsOf(const std::string& text) {
  auto root = YamlMap::Parse(text, "imgd.yaml");
  EXPECT_TRUE(root);
  ReadPolicies(*root);
  std::vector<std::string> out;
  for (const auto& error : root->Errors()) out.push_back(error.ToString());
  return out;
}

constexpr char kJob[] = "name: rn50\ndata: {train: /data/in1k/train}\n";

tl::expected<AllowedJob, std::vector<Error>> Apply(const Policies& policies, const std::string& yaml,
                                                   const std::string& owner = "ada") {
  auto spec = ParseJobFile(yaml, "job.yaml");
  EXPECT_TRUE(spec);
  return ApplyPolicies(policies, yaml, *spec, "job.yaml", owner);
}

/// The first of the errors; RefusedAll() has them all, each on its line.
std::string Refused(const Policies& policies, const std::string& yaml, const std::string& owner = "ada") {
  const auto job = Apply(policies, yaml, owner);
  return job ? "" : job.error().front().ToString();
}

std::string RefusedAll(const Policies& policies, const std::string& yaml) {
  const auto job = Apply(policies, yaml);
  std::string all;
  if (job) return all;
  for (const auto& error : job.error()) all += error.ToString() + "\n";
  return all;
}

TEST(Policy, WithoutAnyTheFileIsAsItWas) { EXPECT_EQ(Apply({}, kJob)->yaml, kJob); }

TEST(Policy, BoundsNumbersAndTimesAndSaysWhoseRuleItIs) {
  const auto policies = Read(
      "policies: [{name: caps, text: ask Bob for more, at_most: {time_limit: 72h, resources.ranks: 16},\n"
      "            at_least: {priority: -5}}]");
  EXPECT_EQ(Refused(policies, "name: a\ntime_limit: 4d\ndata: {train: /d}\n"),
            "job.yaml:2:13: time_limit: is 4d, and at most 3d is allowed by policy caps (ask Bob for more)");
  EXPECT_EQ(Refused(policies, "name: a\ntime_limit: 72h\ndata: {train: /d}\n"), "");
  EXPECT_THAT(Refused(policies, kJob),
              HasSubstr("time_limit: is without a limit, and at most 3d is allowed"));
  EXPECT_THAT(Refused(policies,
                      "name: a\ntime_limit: 1h\nresources: {nodes: 3, ranks_per_node: 8}\n"
                      "train: {global_batch: 240}\ndata: {train: /d}\n"),
              HasSubstr("resources.ranks: is 24, and at most 16 is allowed"));
  EXPECT_THAT(Refused(policies, "name: a\ntime_limit: 1h\npriority: -6\ndata: {train: /d}\n"),
              HasSubstr("priority: is -6, and at least -5 is allowed"));
}

TEST(Policy, EveryRuleThatIsBrokenIsToldInTheOrderOfTheFile) {
  const auto policies = Read(
      "policies:\n  - {name: caps, at_most: {priority: 10, time_limit: 10m, resources.ranks: 4}}\n"
      "  - {name: sets, text: ask Bob, one_of: {data.train: [/data/*]}, at_most: {priority: 5}}");
  EXPECT_EQ(RefusedAll(policies,
                       "name: a\npriority: 11\ntime_limit: 11m\nresources: {ranks_per_node: 5}\n"
                       "data: {train: /d}\ntrain: {global_batch: 250}\n"),
            "job.yaml:2:11: priority: is 11, and at most 10 is allowed by policy caps\n"
            "job.yaml:2:11: priority: is 11, and at most 5 is allowed by policy sets (ask Bob)\n"
            "job.yaml:3:13: time_limit: is 11m, and at most 10m is allowed by policy caps\n"
            "job.yaml:4:12: resources.ranks: is 5, and at most 4 is allowed by policy caps\n"
            "job.yaml:5:15: data.train: is '/d', and /data/* is allowed by policy sets (ask Bob)\n");
}

TEST(Policy, AGangThatGrowsIsBoundedAtItsMostAndOneThatShrinksAtItsLeast) {
  const auto policies = Read(
      "policies: [{name: caps, at_most: {resources.ranks: 64, resources.nodes: 10}, at_least: "
      "{resources.nodes: 2}}]");
  const auto refused = [&](const std::string& nodes, int ranks = 1) {
    return Refused(policies, fmt::format("name: a\nresources: {{nodes: {}, ranks_per_node: {}}}\n"
                                         "command: {{run: [x]}}\n",
                                         nodes, ranks));
  };
  EXPECT_EQ(refused("{min: 2, max: 10}", 6), "");
  EXPECT_EQ(refused("{min: 2, max: 11}"),
            "job.yaml:2:20: resources.nodes: is 2 to 11, and at most 10 is allowed by policy caps");
  EXPECT_THAT(refused("{min: 2, max: 9}", 8),
              HasSubstr("resources.ranks: is 16 to 72, and at most 64 is allowed"));
  EXPECT_THAT(refused("{min: 1, max: 10}"),
              HasSubstr("resources.nodes: is 1 to 10, and at least 2 is allowed"));
  EXPECT_THAT(refused("1"), HasSubstr("resources.nodes: is 1, and at least 2 is allowed"));
}

TEST(Policy, TheBatchOfEachPhaseIsBounded) {
  const auto policies = Read(
      "policies: [{name: caps, at_most: {train.global_batch: 512}, at_least: {train.global_batch: 64}}]");
  const auto refused = [&](int first, int second) {
    return Refused(policies, fmt::format("{}train: {{epochs: 2}}\nphases: [{{until: 1, global_batch: {}}}, "
                                         "{{until: 2, global_batch: {}}}]\n",
                                         kJob, first, second));
  };
  EXPECT_EQ(refused(64, 512), "");
  EXPECT_THAT(refused(1024, 256),
              HasSubstr("train.global_batch: is 256 to 1024, and at most 512 is allowed"));
  EXPECT_THAT(refused(128, 32), HasSubstr("is 32 to 128, and at least 64 is allowed"));
}

TEST(Policy, GpusAndMachinesAreThoseThatAreAllowedAndLeftOpenTheyAreAny) {
  const auto policies = Read(
      "policies: [{name: small, one_of: {resources.gpu.model: [A100, L4], resources.capacity: [spot], "
      "resources.whole_nodes: ['false']}}]");
  const auto refused = [&](const std::string& resources) {
    return Refused(policies, fmt::format("{}resources: {{{}}}\n", kJob, resources));
  };
  EXPECT_EQ(refused("gpu: {model: A100}, capacity: spot"), "");
  EXPECT_EQ(refused("gpu: {model: A100|L4}, labels: {capacity: spot}"), "") << "the label that it stands for";
  EXPECT_EQ(refused("gpu: none, capacity: spot"), "") << "it has none";
  EXPECT_THAT(refused("gpu: {model: A100|H100}, capacity: spot"),
              HasSubstr("resources.gpu.model: is 'H100', and one of A100, L4 is allowed by policy small"));
  for (const char* open : {"", "gpu: {count: 1}, ", "gpu: {model: any}, "}) {
    EXPECT_THAT(refused(std::string(open) + "capacity: spot"),
                HasSubstr("resources.gpu.model: is 'any', and one of A100, L4 is allowed"));
  }
  EXPECT_THAT(refused("gpu: none"), HasSubstr("resources.capacity: is 'any', and spot is allowed"));
  EXPECT_THAT(refused("gpu: none, capacity: on_demand"), HasSubstr("resources.capacity: is 'on_demand'"));
  EXPECT_THAT(refused("gpu: none, labels: {capacity: spot|on_demand}"), HasSubstr("is 'on_demand'"));
  EXPECT_THAT(refused("gpu: none, capacity: spot, whole_nodes: true"),
              HasSubstr("resources.whole_nodes: is 'true', and false is allowed"));
}

TEST(Policy, PlacesAreThoseOfTheFileAsItWasWritten) {
  const auto policies = Read("policies: [{name: caps, at_most: {priority: 5}, defaults: {time_limit: 1h}}]");
  EXPECT_THAT(Refused(policies, "# ours\n\n" + std::string(kJob) + "\npriority: 9\n"),
              HasSubstr("job.yaml:6:11: priority: is 9"))
      << "and not those of the text with the default";
}

TEST(Policy, AModelIsFilledInWhereAGpuMayBe) {
  const auto policies = Read("policies: [{name: gpus, defaults: {resources.gpu.model: L4}}]");
  EXPECT_THAT(Apply(policies, kJob)->spec.resources.gpu_models, testing::ElementsAre("L4"));
  const auto cpu = Apply(policies, std::string(kJob) + "resources: {gpu: none}\n");
  ASSERT_TRUE(cpu) << cpu.error().front().ToString();
  EXPECT_TRUE(cpu->spec.resources.cpu);
}

TEST(Policy, OfCommandsTheProgramItsFolderAndItsVariables) {
  const auto policies = Read(
      "policies: [{name: tools, one_of: {command.run: [torchrun, '/opt/team/*'], command.dir: "
      "['/shared/*'], command.env: [LR, 'TEAM_*']}}]");
  const auto refused = [&](const std::string& command) {
    return Refused(policies, fmt::format("name: a\ncommand: {{{}}}\n", command));
  };
  EXPECT_EQ(refused("run: [torchrun, /home/x.py], dir: /shared/a, env: {LR: 1, TEAM_A: 2}"), "");
  EXPECT_EQ(refused("run: [/opt/team/bin/x]"), "");
  EXPECT_THAT(refused("run: [/opt/team/../bin/x]"),
              HasSubstr("command.run: is '/opt/bin/x', and one of torchrun, /opt/team/* is allowed"));
  EXPECT_THAT(refused("run: 'torchrun x.py'"), HasSubstr("command.run: is '/bin/sh'"));
  EXPECT_THAT(refused("run: [./torchrun], dir: /shared/a"), HasSubstr("command.run: is './torchrun'"))
      << "it is no program of PATH";
  EXPECT_THAT(refused("run: [torchrun], dir: /shared/../etc"),
              HasSubstr("command.dir: is '/etc', and /shared/* is allowed by policy tools"));
  EXPECT_THAT(refused("run: [torchrun], env: {LD_PRELOAD: /x.so}"),
              HasSubstr("command.env: is 'LD_PRELOAD'"));
  EXPECT_EQ(Refused(policies, kJob), "") << "it is no command";
}

TEST(Policy, AProgramInTheFolderOfTheCommandIsNoneOfPath) {
  const auto policies =
      Read("policies: [{name: own, one_of: {command.run: ['py*', ./run.sh, './bin/*', tools/make.sh]}}]");
  const auto refused = [&](const std::string& program) {
    return Refused(policies, fmt::format("name: a\ncommand: {{run: ['{}']}}\n", program));
  };
  for (const char* allowed :
       {"python3", "./run.sh", "x/../run.sh", "./bin/a", "bin/a", "tools/make.sh", "./tools/make.sh"})
    EXPECT_EQ(refused(allowed), "") << allowed;
  for (const char* other : {"run.sh", "./python3", "python/x", "bin/../x", "./bin/../../x", "bin/../../x",
                            "s3://../../x", "/run.sh"})
    EXPECT_THAT(refused(other), HasSubstr("is allowed by policy own")) << other;
}

TEST(Policy, ASweepIsBoundedAsOneAndItsJobsByThemselves) {
  const auto policies = Read(
      "policies: [{name: sweeps, text: ask Bob, at_most: {sweep.jobs: 4, sweep.max_running: 2, "
      "train.epochs: 5}, defaults: {sweep.max_running: 1, time_limit: 1h}}]");
  const auto sweep = [](const std::string& seeds, const std::string& more = "") {
    return fmt::format("{}sweep: {{grid: {{seed: [{}]}}{}}}\n", kJob, seeds, more);
  };
  EXPECT_EQ(Refused(policies, sweep("1, 2, 3, 4")), "") << "what its jobs are is looked at then";
  EXPECT_EQ(Refused(policies, sweep("1, 2, 3, 4, 5")),
            "job.yaml:3:8: sweep.jobs: is 5, and at most 4 is allowed by policy sweeps (ask Bob)");
  EXPECT_THAT(Refused(policies, sweep("1, 2", ", max_running: 3")),
              HasSubstr("sweep.max_running: is 3, and at most 2 is allowed"));
  const auto filled = Apply(policies, sweep("1, 2"));
  ASSERT_TRUE(filled) << filled.error().front().ToString();
  EXPECT_EQ(filled->spec.sweep->max_running, 1);
  EXPECT_EQ(filled->spec.time_limit_ms, 0) << "of each job";
  EXPECT_THAT(Refused(Read("policies: [{name: a, at_most: {sweep.max_running: 2}}]"), sweep("1, 2")),
              HasSubstr("sweep.max_running: is without a limit"));
  EXPECT_EQ(Refused(Read("policies: [{name: a, at_most: {sweep.jobs: 2}}]"), kJob), "") << "it is no sweep";
}

TEST(Policy, FillsInWhatIsLeftOutBeforeItBounds) {
  const auto policies = Read(
      "policies: [{name: caps, defaults: {time_limit: 24h, checkpoint.dir: /shared/c}, at_most: {time_limit: "
      "72h}}]");
  const auto job = Apply(policies, kJob);
  ASSERT_TRUE(job) << job.error().front().ToString();
  EXPECT_EQ(job->spec.time_limit_ms, 24 * 3600 * 1000);
  EXPECT_EQ(job->spec.checkpoint.dir, "/shared/c");
  EXPECT_THAT(job->yaml, AllOf(HasSubstr("time_limit: 24h"), HasSubstr("dir: /shared/c")));
  EXPECT_EQ(Apply(policies, "name: a\ntime_limit: 1h\ndata: {train: /d}\n")->spec.time_limit_ms, 3600 * 1000);
}

TEST(Policy, WhatTheFileSaysByAnotherNameIsNotFilledIn) {
  const auto policies = Read(
      "policies: [{name: house, defaults: {resources.ranks_per_node: 8, resources.capacity: on_demand, "
      "train.epochs: 90}}]");
  const auto filled = [&](const std::string& more) {
    const auto job = Apply(policies, kJob + more);
    EXPECT_TRUE(job) << job.error().front().ToString();
    return job ? job->spec : JobSpec();
  };
  EXPECT_EQ(filled("resources: {gpu: {count: 4}}\n").resources.ranks_per_node, 4);
  EXPECT_EQ(filled("resources: {gpu: none}\n").resources.ranks_per_node, 8) << "it says nothing of it";
  const auto spot = filled("resources: {labels: {capacity: spot}}\n").resources;
  EXPECT_EQ(spot.labels.at("capacity"), std::vector<std::string>{"spot"});
  EXPECT_TRUE(spot.not_labels.empty());
  EXPECT_EQ(filled("resources: {not_labels: {capacity: spot}}\n").resources.not_labels.size(), 1u);
  EXPECT_EQ(filled("phases: [{until: 9}, {until: 18}]\n").train.epochs, 18);
  EXPECT_EQ(filled("").train.epochs, 90);
  const auto bounded = Read(
      "policies: [{name: house, defaults: {resources.capacity: on_demand}, "
      "one_of: {resources.capacity: [on_demand]}}]");
  EXPECT_THAT(Refused(bounded, std::string(kJob) + "resources: {labels: {capacity: spot}}\n"),
              HasSubstr("resources.capacity: is 'spot', and on_demand is allowed by policy house"));
}

TEST(Policy, WordsMatchOneOfThePatterns) {
  const auto policies = Read(
      "policies: [{name: paths, one_of: {data.train: [/data/*, 'dataset:*'], project: [vision, nlp], "
      "model.init_from: ['/models/*']}}]");
  const std::string rest = "project: vision\n";
  EXPECT_EQ(Refused(policies, kJob + rest), "");
  EXPECT_EQ(Refused(policies, "name: a\ndata: {train: 'dataset:in1k'}\n" + rest), "");
  EXPECT_THAT(
      Refused(policies, "name: a\ndata: {train: /home/ada}\n" + rest),
      HasSubstr("data.train: is '/home/ada', and one of /data/*, dataset:* is allowed by policy paths"));
  EXPECT_THAT(Refused(policies, kJob), HasSubstr("project: is '', and one of vision, nlp is allowed"));
  EXPECT_THAT(Refused(policies, kJob + rest + "model: {init_from: /tmp/w.pth}\n"),
              HasSubstr("model.init_from: is '/tmp/w.pth', and /models/* is allowed"));
}

TEST(Policy, ADataSetMayBeNamedAsAllowedOrBeWhereTheNameLeads) {
  const auto policies = Read("policies: [{name: sets, one_of: {data.train: ['dataset:in1k*']}}]");
  const auto refused = [&](const std::string& train) {
    const std::string yaml = fmt::format("name: a\ndata: {{train: '{}'}}\n", train);
    const auto job = ApplyPolicies(policies, yaml, *ParseJobFile(yaml, ""), "job.yaml", "ada",
                                   [](const std::string& at) { return RefTo("in1k", "/sets/in1k/", at); });
    return job ? "" : job.error().front().ToString();
  };
  EXPECT_EQ(refused("dataset:in1k/train"), "");
  EXPECT_EQ(refused("/sets/in1k/train"), "") << "as the file of a job has it that named the set";
  EXPECT_EQ(refused("/sets/in1k"), "");
  for (const char* other : {"/sets/in1k-mine/train", "/sets/in1k/../mine", "/sets"})
    EXPECT_THAT(refused(other), HasSubstr("and dataset:in1k* is allowed by policy sets")) << other;
}

TEST(Policy, EveryPhasesImagesAreLookedAt) {
  const auto policies = Read("policies: [{name: paths, one_of: {data.train: [/data/*]}}]");
  EXPECT_THAT(Refused(policies, std::string(kJob) +
                                    "train: {epochs: 2}\nphases: [{until: 1, train: /home/x}, {until: 2}]\n"),
              HasSubstr("is '/home/x'"));
}

TEST(Policy, IsForTheUsersAndProjectsThatItNames) {
  const auto policies =
      Read("policies: [{name: caps, users: [ada], projects: [vision], at_most: {train.epochs: 10}}]");
  EXPECT_NE(Refused(policies, std::string(kJob) + "project: vision\n"), "");
  EXPECT_EQ(Refused(policies, kJob), "") << "of no project";
  EXPECT_EQ(Refused(policies, std::string(kJob) + "project: vision\n", "bob"), "");
}

TEST(Policy, FieldsThatAKindOfJobDoesNotHaveBoundItNot) {
  const auto policies = Read(
      "policies: [{name: caps, defaults: {train.epochs: 5, time_limit: 1h}, at_most: {train.epochs: 10, "
      "time_limit: 2h},\n"
      "            one_of: {data.train: [/data/*], convert.source: [/data/*]}}]");
  const auto command = Apply(policies, "name: a\ncommand: {run: [x]}\n");
  ASSERT_TRUE(command) << command.error().front().ToString();
  EXPECT_EQ(command->yaml.find("train"), std::string::npos);
  EXPECT_EQ(command->spec.time_limit_ms, 3600 * 1000);
  EXPECT_THAT(Refused(policies, "name: a\ncommand: {run: [x]}\ntime_limit: 3h\n"),
              HasSubstr("time_limit: is 3h"));
  EXPECT_EQ(Refused(policies, "name: a\nconvert: {source: /data/x, target: /y}\n"), "");
  EXPECT_THAT(Refused(policies, "name: a\nconvert: {source: /home/x, target: /y}\n"),
              HasSubstr("convert.source: is '/home/x', and /data/* is allowed"));
}

TEST(Policy, KeepsCommandsFromAProject) {
  const auto policies =
      Read("policies: [{name: no, projects: [vision], one_of: {kind: [training, conversion]}}]");
  EXPECT_THAT(Refused(policies, "name: a\nproject: vision\ncommand: {run: [x]}\n"),
              HasSubstr("kind: is 'command', and one of training, conversion is allowed by policy no"));
  EXPECT_EQ(Refused(policies, "name: a\ncommand: {run: [x]}\n"), "");
  EXPECT_EQ(Refused(policies, std::string(kJob) + "project: vision\n"), "");
}

TEST(Policy, ADefaultThatMakesTheFileWrongNamesThePolicy) {
  const auto policies = Read("policies: [{name: caps, defaults: {train.global_batch: 255}}]");
  EXPECT_THAT(Refused(policies, std::string(kJob) + "resources: {nodes: 2}\n"),
              AllOf(HasSubstr("global_batch"), HasSubstr("policy caps filled in")));
}

TEST(Policy, WhatIsWrongInTheConfigurationIsNamed) {
  EXPECT_THAT(ErrorsOf("policies: [{at_most: {priority: 1}}]"),
              testing::ElementsAre(HasSubstr("name: missing")));
  EXPECT_THAT(ErrorsOf("policies: [{name: a}]"), testing::ElementsAre(HasSubstr("none of defaults")));
  EXPECT_THAT(ErrorsOf("policies: [{name: a, at_most: {optimizer.lr: 1, priority: 1}}]"),
              testing::ElementsAre(AllOf(HasSubstr("imgd.yaml:1:"), HasSubstr("time_limit"))));
  EXPECT_THAT(ErrorsOf("policies: [{name: a, at_most: {model.name: x}, one_of: {priority: a}, "
                       "at_least: {priority: 1}}]"),
              SizeIs(2));
  EXPECT_THAT(ErrorsOf("policies: [{name: a, at_most: {time_limit: long}}]"),
              testing::Contains(HasSubstr("a duration")));
  EXPECT_THAT(ErrorsOf("policies: {name: a}"), testing::ElementsAre(HasSubstr("a list is expected")));
}

TEST(Policy, PathsAreComparedAsTheSystemReadsThem) {
  const auto policies = Read(
      "policies:\n"
      "  - {name: shared, one_of: {checkpoint.dir: [/shared/*], data.train: [/data/*, 's3://sets/*']}}\n");
  const std::string head = "name: rn50\n";
  EXPECT_EQ(Refused(policies, head + "data: {train: /data/../data/a}\n"), "");
  EXPECT_THAT(Refused(policies, head + "data: {train: /data/../etc}\n"), HasSubstr("is '/etc'"));
  EXPECT_EQ(Refused(policies, head + "data: {train: 's3://sets/a/../..b/c'}\n"), "");
  for (const char* above : {"s3://sets/../other/a", "s3://mine/../sets/a", "s3://mine/x/../../sets/a"}) {
    EXPECT_THAT(Refused(policies, fmt::format("{}data: {{train: '{}'}}\n", head, above)),
                HasSubstr("is 's3://../"))
        << above;
  }
  for (const char* dir : {"/shared/../esc", "/shared/x://../../esc"}) {
    EXPECT_THAT(Refused(policies, fmt::format("{}checkpoint: {{dir: '{}'}}\n", kJob, dir)),
                HasSubstr("is '/esc'"));
  }
}

TEST(Policy, NoPatternLeadsOutOfTheFolderThatIsAllowed) {
  const auto policies = Read(
      "policies: [{name: sets, one_of: {data.train: [/data/*, 's3://sets/*', 'dataset:*'],\n"
      "            data.val: [/data/*], convert.source: [/data/*]}}]");
  const auto refused = [&](const std::string& train) {
    return Refused(policies, fmt::format("name: a\ndata: {{train: '{}'}}\n", train));
  };
  EXPECT_THAT(refused("/data/{.}{.}/secret/x-{000..009}.tar"),
              HasSubstr("data.train: is '/data/{.}{.}/secret/x-{000..009}.tar', in which '{.}{.}' may lead "
                        "to another folder; that is not allowed by policy sets"));
  for (const char* other : {"/data/.*/secret/*.tar", "/data/.[!a]/x", "/data/{,x}{a,.}./x", "/data/{,x}../x",
                            "/data/..{}/x", "/data/\\.\\./secret/*.tar", "/data/x{/.,y}./secret",
                            "/data/{,x}/../secret", "s3://sets/{.}{.}/other/x", "dataset:in1k/{.}{.}/x"})
    EXPECT_THAT(refused(other), HasSubstr("may lead to another folder")) << other;
  for (const char* usual :
       {"/data/train-{000..146}.tar", "/data/*.tar", "/data/{train,val}-*.tar", "/data/{000..009}.tar",
        "/data/{train,val}/*", "/data/{a.tar,b.tar}", "/data/{,in1k-}train-??[0-9].tar",
        "/data/.cache/x-*.tar", "s3://sets/in1k/train-{000..146}.tar", "dataset:in1k/train-*"})
    EXPECT_EQ(refused(usual), "") << usual;
  for (const std::string& yaml :
       {std::string(kJob) +
            "train: {epochs: 2}\nphases: [{until: 1, train: '/data/{.}{.}/secret'}, {until: 2}]\n",
        std::string("name: a\ndata: {train: /data/a, val: '/data/{.}{.}/secret'}\n"),
        std::string("name: a\nconvert: {source: '/data/{.}{.}/secret', target: /y}\n")})
    EXPECT_THAT(Refused(policies, yaml), HasSubstr("'{.}{.}' may lead to another folder")) << yaml;
}

TEST(Policy, WhatIsAskedLaterKeepsItToo) {
  const auto policies = Read(
      "policies:\n"
      "  - {name: caps, text: ask Bob, projects: [vision], at_most: {priority: 10, time_limit: 72h}}\n");
  JobSpec job;
  job.project = "vision";
  job.priority = 11;
  const auto refused = KeepsPolicies(policies, job, "priority", "ada");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().ToString(), "priority is 11, and at most 10 is allowed by policy caps (ask Bob)");
  EXPECT_TRUE(KeepsPolicies(policies, job, "grace", "ada"));
  EXPECT_THAT(KeepsPolicies(policies, job, "time_limit", "ada").error().message,
              HasSubstr("time_limit is without a limit, and at most 3d is allowed"));
  job.project = "audio";
  EXPECT_TRUE(KeepsPolicies(policies, job, "priority", "ada")) << "the policy is for others";
}

TEST(Policy, WhatNoJobCouldKeepIsAnErrorOfThePolicy) {
  const struct {
    const char* policy;
    const char* error;
  } cases[] = {
      {"defaults: {priority: high}", "priority: 'high' is no value that it can have"},
      {"defaults: {priority: 5000}", "priority: '5000' is no value that it can have"},
      {"defaults: {time_limit: 2h}, at_most: {time_limit: 1h}",
       "time_limit is 2h, and at most 1h is allowed"},
      {"at_least: {time_limit: 2h}, at_most: {time_limit: 1h}", "time_limit: more than at_most allows"},
      {"defaults: {sweep.max_running: 5}, at_most: {sweep.max_running: 2}",
       "sweep.max_running is 5, and at most 2"},
      {"defaults: {command.dir: /x}, one_of: {command.dir: [/y]}", "command.dir is '/x', and /y is allowed"},
      {"defaults: {command.dir: x}", "command.dir: 'x' is no value that it can have"},
      {"one_of: {project: []}", "is empty, so that nothing would be allowed"},
      {"users: [], at_most: {priority: 1}", "is empty; leave it out where the policy is for all"},
  };
  for (const auto& c : cases) {
    const auto errors = ErrorsOf(fmt::format("policies:\n  - {{name: a, {}}}\n", c.policy));
    ASSERT_THAT(errors, SizeIs(1)) << c.policy;
    EXPECT_THAT(errors.front(), HasSubstr(c.error));
  }
  EXPECT_THAT(
      ErrorsOf("policies:\n  - {name: a, at_most: {priority: 1}}\n  - {name: a, at_most: {priority: 2}}\n"),
      testing::ElementsAre(HasSubstr("another policy is called 'a' too")));
}

TEST(Policy, TrainingFollowsOneOfTheRecipesButForWhatIsTheJobsOwn) {
  const std::string folder = testing::TempDir() + "imgd-policy-recipes";
  std::filesystem::create_directories(folder);
  const auto write = [&](const std::string& name, const std::string& text) {
    const std::string path = folder + "/" + name;
    EXPECT_TRUE(WriteFileAtomically(path, text));
    return path;
  };
  const std::string rn50 = write("rn50.yaml",
                                 "name: rn50\nresources: {nodes: 2}\nmodel: {name: resnet50}\n"
                                 "train: {epochs: 90, global_batch: 256}\noptimizer: {lr: 0.1}\n");
  const std::string rn18 = write("rn18.yaml", "name: rn18\nmodel: {name: resnet18}\ntrain: {epochs: 90}\n");
  const auto policies =
      Read(fmt::format("policies: [{{name: house, text: ask Bob, recipes: [{}, {}]}}]", rn50, rn18));
  const std::string follows =
      "name: mine\nseed: 7\nresources: {nodes: 4}\nmodel: {name: resnet50}\ndata: {train: /d, workers: 3}\n"
      "train: {epochs: 90, global_batch: 256, threads: 2}\noptimizer: {lr: 0.1}\n";
  EXPECT_EQ(Refused(policies, follows), "");
  EXPECT_EQ(Refused(policies, follows + "notify: [mail, {to: ops, when: [failed]}]\n"), "")
      << "who is told of it";
  EXPECT_EQ(Refused(policies, "name: b\nmodel: {name: resnet18}\ndata: {train: /d}\ntrain: {epochs: 10}\n"),
            "job.yaml:4:17: train.epochs: is 10, and recipe rn18 has 90; one of rn50, rn18 is allowed by "
            "policy house "
            "(ask Bob)");
  EXPECT_THAT(Refused(policies, follows + "loss: {label_smoothing: 0.1}\n"),
              HasSubstr("loss.label_smoothing: is 0.1, and recipe rn50 leaves it out"));
  EXPECT_THAT(Refused(policies, "name: b\nmodel: {name: resnet18}\ndata: {train: /d}\n"),
              HasSubstr("train.epochs: is left out, and recipe rn18 has 90"));
  EXPECT_EQ(Refused(policies, "name: c\ncommand: {run: [x]}\n"), "") << "it trains nothing";
  EXPECT_THAT(ErrorsOf("policies: [{name: a, recipes: [/nonexistent.yaml]}]"),
              testing::ElementsAre(HasSubstr("recipes: can't take /nonexistent.yaml")));
}

}  // namespace
}  // namespace imgd
