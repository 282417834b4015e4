#pragma once

#include "imgd/v1/dataset.pb.h"
#include "imgd/v1/event.pb.h"
#include "imgd/v1/job.pb.h"
#include "imgd/v1/node.pb.h"
#include "server/engine/engine.h"
#include "server/store/reader.h"

/// From the core's and the store's types to those of the contracts.
namespace imgd {

/// The job without its metrics and file. A queued one's reason and position are as `view` has them.
v1::Job ToProto(const JobRecord& job, const ClusterView& view);

/// The same with its latest figures and, where the row has it, the file. Figures of an earlier start than its
/// latest are without speeds and times. Reads the databases.
Result<v1::Job> FullJob(const JobRow& row, const ClusterView& view, Reader& reader);

/// Adds to its device-hours and cost what it has held since it was counted last.
void AddHeldSince(const JobRecord& job, const ClusterView& view, WallTime now, v1::Job& out);

/// What the job comes after.
void FillAfter(const std::vector<Dependency>& after, v1::Job& out);
void FillSweep(const SweepRecord& sweep, v1::Sweep& out);
void FillSettings(const std::vector<SweepSetting>& settings,
                  google::protobuf::RepeatedPtrField<v1::SweepSetting>& out);

v1::JobEvent ToProto(const StoredEvent& event);

v1::Event ToProto(const StoredDecision& decision);
v1::Dataset ToProto(const DatasetRecord& set);
v1::NodeRun ToProto(const NodeRunRow& row);

v1::Node ToProto(const NodeRecord& node, const ClusterView& view);
/// Its `recent_busy_ratios`, which the others leave out: it is for who asks once.
void AddRecentBusy(const ClusterView& view, v1::Node& node);
/// Errors: kNotFound.
Result<v1::Node> NodeOf(const std::string& name, const ClusterView& view);
/// Every node, by name.
void FillNodes(const ClusterView& view, v1::ListNodesResponse& out);

}  // namespace imgd
