#include "common/job_file.h"
#include "imgd/v1/dataset.grpc.pb.h"
#include "server/rpc/testing/rpc_fixture.h"

namespace imgd {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::Property;

struct DatasetTest : RpcTest {
  grpc::Status Register(const std::string& name, const std::string& address, bool replace = false) {
    v1::RegisterDatasetRequest request;
    request.mutable_dataset()->set_name(name);
    request.mutable_dataset()->set_address(address);
    request.mutable_dataset()->set_images(10);
    request.mutable_dataset()->set_owner("ada");
    request.set_replace(replace);
    v1::RegisterDatasetResponse response;
    Context context;
    return v1::DatasetService::NewStub(channel)->RegisterDataset(&context, request, &response);
  }
  std::vector<v1::Dataset> Datasets() {
    v1::ListDatasetsResponse response;
    Context context;
    EXPECT_TRUE(v1::DatasetService::NewStub(channel)->ListDatasets(&context, {}, &response).ok());
    return {response.datasets().begin(), response.datasets().end()};
  }
  grpc::Status Remove(const std::string& name) {
    v1::RemoveDatasetRequest request;
    request.set_name(name);
    v1::RemoveDatasetResponse response;
    Context context;
    return v1::DatasetService::NewStub(channel)->RemoveDataset(&context, request, &response);
  }
};

TEST_F(DatasetTest, ANameOutlivesTheDaemonAndCanBeTakenAway) {
  ASSERT_TRUE(Register("shapes", "/data/shapes").ok());
  ASSERT_TRUE(Register("imagenet", "http://store:8080/imagenet/").ok());
  daemon.reset();
  StartDaemon();
  EXPECT_THAT(Datasets(), ElementsAre(Property(&v1::Dataset::name, "imagenet"),
                                      Property(&v1::Dataset::address, "/data/shapes")));
  EXPECT_GT(Datasets().front().registered_us(), 0);
  ASSERT_TRUE(Remove("shapes").ok());
  EXPECT_THAT(Datasets(), ElementsAre(Property(&v1::Dataset::name, "imagenet")));
  const auto again = Remove("shapes");
  EXPECT_EQ(again.error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST_F(DatasetTest, ANameMovesOnlyWhenThatIsAsked) {
  ASSERT_TRUE(Register("shapes", "/data/shapes").ok());
  EXPECT_TRUE(Register("shapes", "/data/shapes").ok());
  const auto refused = Register("shapes", "/data/other");
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::ALREADY_EXISTS);
  EXPECT_THAT(refused.error_message(), HasSubstr("'shapes' stands for /data/shapes already"));
  ASSERT_TRUE(Register("shapes", "/data/other", /*replace=*/true).ok());
  EXPECT_THAT(Datasets(), ElementsAre(Property(&v1::Dataset::address, "/data/other")));
}

TEST_F(DatasetTest, WhatIsNoNameOrAddressIsRefused) {
  EXPECT_THAT(Register("Image Net", "/data").error_message(),
              HasSubstr("name: found 'Image Net'; allowed: 1 to 63"));
  EXPECT_THAT(Register("imagenet", "").error_message(), HasSubstr("address: found ''"));
  for (const char* secret : {"https://me:word@host/set", "https://host/set/?signature=word"}) {
    EXPECT_THAT(
        Register("imagenet", secret).error_message(),
        AllOf(HasSubstr("would be kept and shown"), Not(HasSubstr("word@")), Not(HasSubstr("=word"))));
  }
  EXPECT_THAT(Register("imagenet", "dataset:other").error_message(),
              HasSubstr("address: found 'dataset:other'"));
}

TEST_F(DatasetTest, AJobIsStoredWithTheAddressOfTheNameThatItUses) {
  ASSERT_TRUE(Register("shapes", R"(/data/"my": shapes #1/)").ok());
  const auto id = Submit("name: rn50\ndata: {train: dataset:shapes/train, val: dataset:shapes/val}\n");
  ASSERT_TRUE(Register("shapes", "/elsewhere", /*replace=*/true).ok());
  const auto spec = ParseJobFile(Get(id).job().job_yaml(), "job.yaml");
  ASSERT_TRUE(spec.has_value());
  EXPECT_EQ(spec->data.train, R"(/data/"my": shapes #1/train)");
  EXPECT_EQ(spec->data.val, R"(/data/"my": shapes #1/val)");
}

TEST_F(DatasetTest, APhaseMayUseANameToo) {
  ASSERT_TRUE(Register("small", "/data/shapes160").ok());
  const auto id = Submit(
      "name: rn50\ndata: {train: /data/train}\ntrain: {epochs: 2}\n"
      "phases: [{epochs: 1, train: dataset:small}, {epochs: 1}]\n");
  const auto spec = ParseJobFile(Get(id).job().job_yaml(), "job.yaml");
  ASSERT_TRUE(spec.has_value());
  EXPECT_EQ(spec->phases[0].train, "/data/shapes160");
  EXPECT_EQ(spec->phases[1].train, "");
}

TEST_F(DatasetTest, WhatAPolicyAllowsByItsNameMayBeSubmittedAgainByItsAddress) {
  auto root = YamlMap::Parse("policies: [{name: sets, one_of: {data.train: ['dataset:*']}}]", "imgd.yaml");
  config.policies = ReadPolicies(*root);
  daemon.reset();
  StartDaemon();
  ASSERT_TRUE(Register("shapes", "/data/shapes").ok());
  const auto id = Submit("name: rn50\ndata: {train: dataset:shapes/train}\n");
  v1::SubmitJobResponse response;
  EXPECT_EQ(Submit(Get(id).job().job_yaml(), response).error_message(), "");
  EXPECT_THAT(Submit("name: rn50\ndata: {train: /data/mine}\n", response).error_message(),
              HasSubstr("data.train: is '/data/mine', and dataset:* is allowed by policy sets"));
}

TEST_F(DatasetTest, AJobWithANameThatNobodyRegisteredIsRefusedAtItsPlace) {
  ASSERT_TRUE(Register("imagenet", "/data/imagenet").ok());
  v1::SubmitJobResponse response;
  const auto status = Submit("name: rn50\ndata:\n  train: dataset:imagnet/train\n", response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(),
              HasSubstr("job.yaml:3:10: data.train: no data set 'imagnet' is registered"));
  EXPECT_THAT(status.error_message(), HasSubstr("did you mean 'imagenet'?"));
  const auto both = Submit("name: rn50\ndata: {train: 'dataset:a/train', val: 'dataset:b/val'}\n", response);
  v1::ErrorDetails details;
  ASSERT_TRUE(details.ParseFromString(both.error_details()));
  ASSERT_EQ(details.errors_size(), 2);
  EXPECT_EQ(details.errors(0).message(), "data.train: no data set 'a' is registered");
  EXPECT_EQ(details.errors(1).message(), "data.val: no data set 'b' is registered");
}

}  // namespace
}  // namespace imgd
