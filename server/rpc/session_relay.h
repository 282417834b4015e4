#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "common/clock.h"
#include "imgd/v1/session.pb.h"
#include "server/engine/engine.h"
#include "server/engine/read_pool.h"
#include "server/rpc/session_port.h"
#include "server/rpc/session_words.h"

namespace imgd {

/// What the operator allows of sessions.
struct SessionRules {
  bool allowed = false;
  Duration idle_limit = std::chrono::hours(4);  ///< without a byte either way; zero: for ever
  uint32_t most_per_node = 16;
};

using PersonPort = SessionPort<v1::OpenSessionResponse>;
using NodePort = SessionPort<v1::ServeSessionResponse>;

/// Brings the two streams of each session together and carries frames between them, one at a time each way,
/// so that nothing piles up here. Records who began what and where before it begins, and its end.
/// Thread-safe.
class SessionRelay {
 public:
  /// The engine must outlive it.
  explicit SessionRelay(Engine* engine);
  /// After the gRPC server has ended.
  ~SessionRelay();

  /// For what is begun from now on; the idle limit holds for what goes on, too.
  void SetRules(SessionRules rules);

  /// A person's stream; `token_owner`: who it is, where a token says so. The number names it from here on.
  uint64_t AddPerson(std::shared_ptr<PersonPort> port, std::string token_owner);
  void OnPersonMessage(uint64_t number, v1::OpenSessionRequest message);
  void OnPersonGone(uint64_t number);

  /// An agent's stream; `node`: that of its certificate, empty where it needs none.
  uint64_t AddNode(std::shared_ptr<NodePort> port, std::string node);
  void OnNodeMessage(uint64_t number, v1::ServeSessionRequest message);
  void OnNodeGone(uint64_t number);

  /// Records the end of those that an imgd before this one began and could not end, as where it was killed.
  /// Before any begins.
  void EndThoseOfBefore(ReadPool& pool);

  /// Ends all, and those that would begin: imgd stops.
  void Close();

 private:
  enum class Phase { kNew, kAsked, kServed, kOpen, kOver };
  struct Session {
    Phase phase = Phase::kNew;
    std::shared_ptr<PersonPort> person;
    std::shared_ptr<NodePort> agent;  ///< null before kServed
    uint64_t agent_number = 0;
    std::string actor;
    std::string id;  ///< a secret
    NodeId node;
    JobId job;
    std::string what;  ///< "a shell beside rank 0 of job 7", for people
    v1::SessionTask task;
    uint64_t parent = 0;    ///< of a connection: the session that forwards
    uint32_t port = 0;      ///< of one that forwards
    bool recorded = false;  ///< its beginning is
    Instant begun{};
    Instant deadline{};  ///< before kOpen: for the node's answer
    Instant heard{};     ///< a byte, either way
  };
  struct Node {
    std::shared_ptr<NodePort> port;
    std::string name;
    uint64_t session = 0;  ///< 0 before it has said which
  };
  using Lock = std::unique_lock<std::mutex>;

  // With the lock held, which they give back where they say so.
  Session* Find(uint64_t number);
  Status Admit(const v1::OpenSessionRequest& message, Session& session);
  Status AdmitChild(const std::string& parent, Session& session);
  /// Ends it with this status for the person, and tells the agent. `how`: for the record.
  void Finish(Lock lock, uint64_t number, const grpc::Status& status, const std::string& how);

  void Begin(uint64_t number, const v1::SessionBegin& begin);
  void OnPlace(uint64_t number, const Result<RankSite>& site);
  void Record(uint64_t number);
  void AskNode(uint64_t number);
  void Refuse(uint64_t number, const Error& why);
  void Attach(uint64_t agent_number, const std::string& id);
  void OnOpened(uint64_t number, v1::SessionOpened opened);
  void OnNodeFrame(uint64_t number, v1::SessionFrame frame);
  void OnEnd(uint64_t number, v1::SessionEnd end);
  static SessionNote NoteOf(const Session& session);
  void RecordEnd(const Session& session, const std::string& how);
  void Watch();
  void EndOverdue(Instant now);

  Engine* engine_;
  std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  SessionRules rules_;
  std::map<uint64_t, Session> sessions_;
  std::map<uint64_t, Node> nodes_;
  uint64_t last_number_ = 0;
  bool closed_ = false;
  bool ends_ = false;
  std::thread watcher_;
};

}  // namespace imgd
