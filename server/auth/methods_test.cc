#include "server/auth/methods.h"

#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>

#include "imgd/v1/admin.pb.h"
#include "imgd/v1/agent.pb.h"
#include "imgd/v1/dataset.pb.h"
#include "imgd/v1/enrol.pb.h"
#include "imgd/v1/event.pb.h"
#include "imgd/v1/job.pb.h"
#include "imgd/v1/node.pb.h"
#include "imgd/v1/session.pb.h"
#include "imgd/v1/token.pb.h"
#include "imgd/v1/usage.pb.h"

namespace imgd {
namespace {

/// Every call of every service of the contract.
std::vector<std::string> CallsOfTheContract() {
  std::vector<std::string> out;
  for (const auto* file :
       {v1::ConnectRequest::descriptor()->file(), v1::ListDatasetsRequest::descriptor()->file(),
        v1::EnrolRequest::descriptor()->file(), v1::ListEventsRequest::descriptor()->file(),
        v1::GetJobRequest::descriptor()->file(), v1::GetNodeRequest::descriptor()->file(),
        v1::BackupRequest::descriptor()->file(), v1::ListTokensRequest::descriptor()->file(),
        v1::ListUsageRequest::descriptor()->file(), v1::OpenSessionRequest::descriptor()->file()}) {
    for (int i = 0; i < file->service_count(); ++i) {
      for (int j = 0; j < file->service(i)->method_count(); ++j)
        out.push_back(file->service(i)->full_name() + "/" + file->service(i)->method(j)->name());
    }
  }
  return out;
}

TEST(Methods, EveryCallOfTheContractIsInTheTableAndNothingElseOfIt) {
  const auto calls = CallsOfTheContract();
  EXPECT_GE(calls.size(), 30u);
  for (const auto& call : calls) EXPECT_TRUE(MethodScopes().contains(call)) << call << " has no scope";
  size_t ours = 0;
  for (const auto& [method, scope] : MethodScopes()) ours += method.starts_with("imgd.v1.") ? 1 : 0;
  EXPECT_EQ(ours, calls.size()) << "a row of a call that is no more";
}

TEST(Methods, WhatIsNotInTheTableNeedsAnAdmin) {
  EXPECT_EQ(ScopeOfMethod("/imgd.v1.JobService/GetJob"), Scope::kView);
  EXPECT_EQ(ScopeOfMethod("imgd.v1.JobService/GetJob"), Scope::kView);
  EXPECT_EQ(ScopeOfMethod("/imgd.v1.JobService/NewCall"), Scope::kAdmin);
  EXPECT_EQ(ScopeOfMethod(""), Scope::kAdmin);
}

}  // namespace
}  // namespace imgd
