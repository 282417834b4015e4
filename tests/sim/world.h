#pragma once

#include <fmt/format.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/sim/agent.h"
#include "tests/sim/daemon.h"
#include "tests/sim/gang.h"
#include "tests/sim/invariants.h"
#include "tests/sim/ledger.h"
#include "tests/sim/network.h"
#include "tests/sim/shape.h"
#include "tests/sim/timeline.h"

namespace imgd::sim {

/// A rule that was broken.
struct Finding {
  std::string rule;
  std::string text;
};

/// One life of a cluster: the real core, and simulated agents, ranks, network, users, clock and faults. The
/// same seed and shape give the same life. One thread.
class World {
 public:
  World(uint64_t seed, Shape shape, bool trace);
  World(const World&) = delete;

  /// Lives until the queue has drained after the busy time, or a rule is broken, which is returned.
  const std::vector<Finding>& Live();

  Dice dice;
  Shape shape;
  CoreSettings settings;
  Timeline time;
  Ledger ledger;
  Network network;
  Daemon daemon;
  Gangs gangs;
  std::vector<std::unique_ptr<Agent>> agents;
  std::vector<std::unique_ptr<Agent>> strangers;  ///< agents with another's name
  std::map<std::string, JobTruth> truths;         ///< by the job's name

  bool quiet() const { return quiet_; }
  void Break(const char* rule, std::string text);
  const std::vector<Finding>& findings() const { return findings_; }

  /// From now on lines of the trace go there, and not to the terminal. It must outlive this.
  void TraceTo(std::vector<std::string>& lines) { lines_ = &lines; }
  /// A trace is wanted.
  bool Tells() const { return trace_ || lines_ != nullptr; }
  /// A line of the trace: what happens, in words. Costs nothing where none is wanted, but for the values.
  template <typename... Values>
  void Say(fmt::format_string<Values...> format, Values&&... values) const {
    if (Tells()) Print(fmt::format(format, std::forward<Values>(values)...));
  }

 private:
  void Print(const std::string& line) const;
  void SubmitNext();
  void LookAfterNodes();
  void GiveOrders();
  void EndTurns();
  void Submit(JobTruth job);
  void SubmitSweep(const JobTruth& sweep);
  std::vector<Dependency> ChooseAfter();
  bool Excused(const JobRecord& job, const std::vector<Space>& space) const;
  void CancelOne();
  void FailNext();
  void BeQuiet();
  bool Drained() const;
  void CheckDrained(Instant deadline);
  Duration LongestDrain() const;

  bool trace_;
  std::vector<std::string>* lines_ = nullptr;
  bool quiet_ = false;
  bool ended_ = false;
  uint64_t submitted_ = 0;
  std::vector<Finding> findings_;
};

/// Somebody asks something of a job or a node, by chance.
void DrawOrder(World& world);
/// Nothing is paused or set aside for ever.
void TidyUp(World& world);

/// Something goes wrong outside the daemon's core, by chance.
void DrawFault(World& world);

}  // namespace imgd::sim
