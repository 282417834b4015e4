#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>

#include "server/core/actions.h"
#include "tests/sim/shape.h"
#include "tests/sim/timeline.h"

namespace imgd::sim {

class World;
class Agent;

/// What the ranks of each start really do: they meet, train, write checkpoints, finish, and fail together.
class Gangs {
 public:
  explicit Gangs(World& world) : world_(&world) {}

  /// A node's ranks run now.
  void Join(Agent& agent, const SendStart& start);
  void RankEnded(RunKey run, uint32_t rank);
  /// Its machine is gone, so that the others get no answer from `address`.
  void RankVanished(RunKey run, uint32_t rank, const std::string& address);
  /// Before a stop; false where the ranks can't.
  bool WriteCheckpoint(RunKey run);
  /// A program that is told to end: how it does. With 0 it has put its work aside.
  int PutAside(RunKey run);
  /// Connections between this node and the others are dead.
  void CutOff(Agent& agent);

  /// The latest generation of the job before this one whose ranks ran; 0 for none.
  Generation NewestThatRan(RunKey before) const;
  /// Some gang that had a part on the node fell apart or hung.
  bool BrokenOn(const NodeId& node) const;
  bool FellApart(RunKey run) const;
  bool EverHung(RunKey run) const;
  /// All ranks of that start trained to the last step and ended with 0.
  bool Finished(RunKey run) const;

 private:
  enum class Fault : uint8_t { kNone, kKilled, kFails, kFailsSilently, kEndsEarly, kCollective, kHangs };
  struct Gang {
    SendStart start;
    std::map<uint32_t, Agent*> members;
    std::set<uint32_t> ended;
    bool begun = false;
    bool training = false;
    bool finished = false;
    bool broken = false;
    bool hung = false;
    uint32_t last = 0;  ///< the rank that the others wait for
    bool silent = false;
    std::string unanswered;
    Instant hung_since{};
    Duration done{};  ///< training behind it at `since`
    Instant since{};
    Duration saved{};    ///< that its newest checkpoint has
    uint32_t epoch = 0;  ///< that it has told of
    Fault fault = Fault::kNone;
    Instant fails_at = Instant::max();
    std::optional<uint32_t> culprit;  ///< the rank that does; nothing: any
  };
  void Begin(RunKey run);
  void Continue(RunKey run);
  void Reach(RunKey run);
  void SayProgress(RunKey run, const Gang& gang);
  void TellEpoch(RunKey run, Gang& gang, const JobTruth& truth);
  void Finish(RunKey run, Gang& gang);
  void Fail(RunKey run, Gang& gang);
  void BreakUp(RunKey run, Gang& gang);
  void Hang(RunKey run, Gang& gang, uint32_t last);
  void PulseAll(RunKey run);
  void BeatAll(RunKey run, Gang& gang);
  void End(RunKey run, Gang& gang, uint32_t rank, int exit_code, int signal, bool reports);
  Duration Done(const Gang& gang) const;
  void Keep(Gang& gang);
  bool AnyAlive(RunKey run, const Gang& gang) const;

  World* world_;
  std::map<RunKey, Gang> gangs_;
  std::unordered_map<std::string, Duration>
      progress_;  ///< of each checkpoint, and of what programs keep in their folders
};

}  // namespace imgd::sim
