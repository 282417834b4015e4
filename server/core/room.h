#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "server/core/bit_set.h"
#include "server/core/close_sets.h"
#include "server/core/layout.h"
#include "server/core/needs.h"
#include "server/core/scheduler.h"

namespace imgd {

/// The same gang, kept off no node. Many share what is known of it; what few have to avoid is not the same
/// for any two.
QueuedJob Anywhere(const QueuedJob& job);

/// When holders end where all that can be taken for the gang are asked for their devices then; nothing where
/// none can be.
std::optional<EndTimes> EndsIfTaken(const QueuedJob& job, const EndTimes& ends, const Holders& holders,
                                    Instant asked);

/// How many nodes that share its folder could hold a node's share of the gang: now, and if all jobs ended,
/// counting lost nodes too.
struct Fit {
  uint32_t free_now = 0;
  uint32_t with_lost = 0;
};

/// The cluster's nodes while a plan fills them with one gang after the other. Asking what a gang finds costs
/// O(devices of a node), placing it O(its nodes * log nodes), whatever the size of the cluster; where nodes
/// say by labels how close they are, also O(sets of close nodes) for a gang of several. Jobs are told apart
/// by their ids: one id stands for one gang.
class Room {
 public:
  /// `nodes`: by name; must outlive it and its copies.
  explicit Room(const std::vector<NodeSlots>& nodes);
  /// `layout`: of these nodes.
  Room(const std::vector<NodeSlots>& nodes, std::shared_ptr<Layout> layout);

  Fit FitOf(const QueuedJob& job);

  /// Whether so many nodes have enough devices, free or not, lost nodes too.
  bool CouldEverHold(const QueuedJob& job);
  /// Whether so many nodes that can be used have enough free devices.
  bool Holds(const QueuedJob& job);
  /// The same, were there not these nodes. Cost: O(log nodes) for each.
  bool HoldsWithout(const QueuedJob& job, const std::set<NodeId>& nodes);
  /// How many nodes that it could have together can be used and have enough free devices.
  uint32_t MostNodes(const QueuedJob& job);
  /// Those that a part of it could be on, whatever is free there, by their places, with those that it avoids.
  /// One set for all that ask for the same of a node and share the same folder; it lives as long as the room.
  const BitSet& NodesFor(const QueuedJob& job) {
    return layout_->NodesFor(*ViewOf(job).frame, job.ranks_per_node, job.most_devices);
  }
  /// If all were free, on nodes of at most `most` devices that are not lost; or on any such, `with_lost`.
  bool CouldHoldOnSmall(const QueuedJob& job, uint32_t most, bool with_lost = false);
  /// As Holds(), with those that are only out of reach.
  bool WillHold(const QueuedJob& job);
  /// Where it would go: nodes as close to each other as there are, and of these the fullest first, so that
  /// whole ones stay free for those who need them. Nothing where it does not fit.
  std::optional<std::vector<Part>> Find(const QueuedJob& job);
  /// What is not free is left alone. `until`: when it is given back; Instant::max() where nobody knows.
  void Take(const std::vector<Part>& parts, Instant until = Instant::max());
  /// The same where the places of the parts' nodes are known already (NodesOf(), the same for all copies).
  void Take(const std::vector<Part>& parts, const std::vector<uint32_t>& nodes, Instant until);
  std::vector<uint32_t> NodesOf(const std::vector<Part>& parts) const;
  /// As Take(), and what is not free is given back then too, whoever has it now: it is somebody's from when
  /// it comes free until then.
  void Promise(const std::vector<Part>& parts, const std::vector<uint32_t>& nodes, Instant until);

  /// What the gang gets first, and when, as holders end; devices that are free now before others. Nothing
  /// where it could not be had though all of them ended, without lost nodes.
  std::optional<Reservation> Reserve(const QueuedJob& job, const EndTimes& ends);
  /// The same where those that can be taken for the job are asked for their devices once that makes room, at
  /// `asked` or later: an estimate, where that is sooner.
  std::optional<Reservation> ReserveOnceTaken(const QueuedJob& job, const EndTimes& ends,
                                              const Holders& holders, Instant asked);
  /// The same, where victims that are enough are asked at `asked`: the reservation names them. Where those
  /// that are leaving are enough it is by their ends alone, so that what they give back stays the gang's.
  std::optional<Reservation> ReserveByPreemption(const QueuedJob& job, EndTimes ends, const Holders& holders,
                                                 Instant asked);

  /// Jobs of a lower priority that have to give their devices back for the gang to start, where that is
  /// enough: of the lowest priority first, then those that lose the least work. None of them where it starts
  /// anyway when those that are leaving are gone; nothing where no set is known to be enough.
  std::optional<std::vector<JobId>> ChooseVictims(const QueuedJob& job, const Holders& holders);

 private:
  using Members = Layout::Members;
  using Frame = Layout::Frame;
  using Judged = Layout::Judged;
  /// Nodes that can be used, by so many ranks that they could take now; not those that could take none. By
  /// their places among the members of a group.
  using ByFree = std::vector<BitSet>;
  /// What is free in a group.
  struct Group {
    const Members* of = nullptr;  ///< in the view's frame
    ByFree by_free;
    /// Nodes of the same label, by its number; made when a gang of several nodes first asks.
    std::optional<std::array<CloseSets, kTopology.size()>> close;
  };
  /// The same of gangs that are also kept off the same nodes.
  struct View {
    bool whole_nodes = false;
    const Frame* frame = nullptr;
    std::vector<Group> groups;
  };
  /// Who sees the same folder, what is asked for, and what it is kept off.
  using ViewKey = std::tuple<const Layout::Groups*, Shared<Needs>, uint32_t, std::set<NodeId>>;
  /// The numbers of views, the same for all copies of a room.
  struct ViewNumbers {
    std::map<ViewKey, size_t> known;
    /// The same of those without nodes to avoid, by the place of their needs; `kept` has these.
    std::map<std::tuple<const Needs*, std::string_view, uint32_t>, size_t> by_place;
    std::deque<std::pair<Shared<Needs>, std::string>> kept;
    /// What was asked last, and its view.
    struct Asked {
      explicit Asked(const QueuedJob& job)
          : id(job.id),
            folder(job.folder),
            needs(job.needs),
            most(job.most_devices),
            avoid(job.avoid.size()) {}
      bool Is(const QueuedJob& job) const {
        return id == job.id && avoid == job.avoid.size() && most == job.most_devices &&
               needs.place() == job.needs.place() && folder == job.folder;
      }
      JobId id;
      std::string folder;
      Shared<Needs> needs;
      uint32_t most;
      size_t avoid;  ///< how many: of one job they stay the same
    };
    std::optional<Asked> last_asked;
    size_t last = 0;

    size_t Of(const QueuedJob& job, Layout& layout);
    size_t Find(const QueuedJob& job, Layout& layout);
  };

  class Ends;
  struct Candidate;
  struct Choice;
  using Release = std::pair<Instant, uint32_t>;  ///< when a device comes free, and its index

  View& ViewOf(const QueuedJob& job);
  void SortByFree(View& view, const QueuedJob& job) const;
  /// The groups that the job may be in.
  std::span<Group> GroupsFor(const QueuedJob& job);
  /// Of a group that has enough nodes with enough free devices, those to take, in the order of ranks.
  std::vector<uint32_t> Choose(Group& group, const QueuedJob& job);
  void ChooseClose(Group& group, const QueuedJob& job, std::vector<uint32_t>& chosen);
  void SortByCloseness(Group& group);
  /// The node could take `from` ranks, and can take `to` now.
  void Move(View& view, uint32_t node, uint32_t from, uint32_t to);
  /// How many ranks a node with so many free devices could take now.
  uint32_t FreeFor(const View& view, uint32_t node, uint32_t free) const;
  /// Of its free devices those that do; and all of them. By index, rising.
  std::vector<uint32_t> FreeDevices(const View& view, uint32_t node) const;
  std::vector<uint32_t> FreeDevices(uint32_t node) const;
  Part PartOn(uint32_t node, uint32_t first_rank, std::vector<uint32_t> devices, const Needs& needs) const;
  std::optional<Instant> EndOfTaken(size_t device) const;
  void FindReleases(const View& view, uint32_t node, Ends& ends, std::vector<Release>& out) const;
  bool HasOneHolder(uint32_t node) const;
  std::vector<uint32_t> FirstDevices(const View& view, uint32_t node, uint32_t count, Ends& ends,
                                     std::vector<Release>& releases) const;
  Candidate CandidateOn(const View& view, uint32_t node, uint32_t ranks, Ends& ends,
                        std::vector<Release>& releases) const;
  std::optional<Choice> Earliest(const QueuedJob& job, const EndTimes& ends);
  Reservation Reserve(const QueuedJob& job, const Choice& choice, const EndTimes& ends);
  static Instant ReadyOf(const std::vector<Candidate>& candidates, size_t nodes);
  void KeepClose(std::vector<Candidate>& candidates, uint32_t nodes);
  static void KeepLeastBusy(std::vector<Candidate>& candidates, size_t nodes);
  size_t IndexOf(const NodeId& id) const;

  const std::vector<NodeSlots>* nodes_;
  std::shared_ptr<Layout> layout_;
  BitSet free_;                           ///< devices
  std::vector<uint32_t> free_on_;         ///< how many of each node's are
  std::map<size_t, Instant> given_back_;  ///< when those are that were taken, where that is known
  BitSet promised_;                       ///< nodes of which given_back_ has some that are held, too
  std::shared_ptr<ViewNumbers> numbers_ = std::make_shared<ViewNumbers>();
  std::vector<std::optional<View>> views_;  ///< by number; those that were asked for
};

}  // namespace imgd
