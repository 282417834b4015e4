#pragma once

#include <condition_variable>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "common/clock.h"
#include "server/engine/engine.h"
#include "server/store/reader.h"
#include "server/web/router.h"

namespace imgd::web {

/// What happens, as Server-Sent Events (docs/api.md) for all who listen: read, put into words and framed
/// once, by a thread of its own, that does nothing while nobody listens. What happens within a quarter of a
/// second goes out as one piece, so that what a listener costs does not grow with the number of jobs.
class LiveFeed {
 public:
  /// The engine must outlive it, and it those who listen. Errors: those of opening the databases.
  static Result<std::unique_ptr<LiveFeed>> Start(const std::filesystem::path& folder, Engine* engine,
                                                 const Clock* clock);
  ~LiveFeed();

  /// `after`: the number of the last event that it has had; it gets those that follow, whenever they were, or
  /// is told that they are gone. Without one it gets those from now on. It is told when it gets all that
  /// happens; before that nothing comes but events that it missed and their jobs. Thread-safe.
  void Add(std::weak_ptr<Listener> listener, std::optional<uint64_t> after);

 private:
  struct Arrival {
    std::weak_ptr<Listener> listener;
    std::optional<uint64_t> after;
  };
  /// What was last said of a job.
  struct KnownJob {
    uint64_t version = 0;  ///< of its events, when it was looked at
    uint64_t step = 0;     ///< number of the event
    std::string summary;   ///< without its figures
    Instant looked{};
    bool changed = true;  ///< a decision was about it
    bool ended = false;
  };

  LiveFeed(Reader reader, Engine* engine, const Clock* clock)
      : reader_(std::move(reader)), engine_(engine), clock_(clock) {}
  void Run();
  std::vector<Arrival> Await();
  /// Takes the state as it is for known to all: nobody has listened until now.
  void Begin();
  void Look();
  void Admit(const std::vector<Arrival>& arrivals);
  /// From now on it is sent what all are; `first` comes before the word that it is.
  void TakeIn(const std::weak_ptr<Listener>& weak, std::string_view first);
  void SendMissed(const Arrival& arrival);
  /// The event with the job as it is now, or that it is no more.
  std::string SummaryNow(JobId id);
  void Broadcast(const std::string& text);
  /// Of those that are stored.
  uint64_t NewestDecision();
  void AddDecisions(std::string& out);
  void AddJobs(std::string& out);
  /// Whether it could be read.
  bool AddJob(JobId id, KnownJob& known, const ClusterView& view, std::string& out);
  void AddNodes(std::string& out);
  void AddDatasets(std::string& out);

  Reader reader_;
  Engine* engine_;
  const Clock* clock_;
  std::thread thread_;
  // Of the thread alone:
  std::vector<std::weak_ptr<Listener>> live_;
  uint64_t last_ = 0;  ///< number of the last event that those have had
  std::map<JobId, KnownJob> jobs_;
  JobId looked_again_;                        ///< the last one that was looked at without news
  std::map<std::string, std::string> nodes_;  ///< what was last said of each
  std::string warning_;                       ///< the same of imgd itself
  Instant nodes_due_{};
  std::shared_ptr<const std::map<std::string, DatasetRecord>> datasets_;  ///< as they were last said
  Instant datasets_due_{};
  Instant sign_of_life_due_{};

  std::mutex mutex_;
  std::condition_variable ready_;
  std::vector<Arrival> arrivals_;  // guarded by mutex_
  bool stopping_ = false;          // guarded by mutex_
};

/// GET /api/v1/stream. The feed must outlive the handler.
Handler StreamHandler(LiveFeed* feed);

}  // namespace imgd::web
