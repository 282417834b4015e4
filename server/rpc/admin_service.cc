#include "server/rpc/admin_service.h"

#include "server/rpc/errors.h"
#include "server/rpc/limits.h"
#include "server/rpc/pumped_stream.h"
#include "server/store/backup.h"

namespace imgd {
namespace {

/// Messages that wait to be written at once, some 256 KiB each.
constexpr size_t kPiecesAtOnce = 4;

/// Sends a backup. Makes it at its first reading, on a thread of the pool, and gives `busy` back at its end.
class BackupStream final : public PumpedStream<v1::BackupResponse> {
 public:
  static BackupStream* Start(Engine* engine, ReadPool* pool, const Clock* clock, bool with_ca,
                             std::string actor, std::shared_ptr<std::atomic<bool>> busy) {
    auto* stream =
        new BackupStream(engine, pool, clock, with_ca, std::move(actor), std::move(busy));  // as EventStream
    // Recorded before anything leaves, and so in the backup itself.
    engine->NoteAdministered(stream->actor_, fmt::format("{} takes a backup of imgd's state", stream->actor_),
                             [stream](const Status& status) {
                               stream->recorded_ = status;
                               stream->Pump();
                             });
    return stream;
  }
  ~BackupStream() override { busy_->store(false); }

 private:
  BackupStream(Engine* engine, ReadPool* pool, const Clock* clock, bool with_ca, std::string actor,
               std::shared_ptr<std::atomic<bool>> busy)
      : PumpedStream(pool, &engine->events(), kDecisionsTopic),
        engine_(engine),
        clock_(clock),
        with_ca_(with_ca),
        actor_(std::move(actor)),
        busy_(std::move(busy)) {}

  Step Read(Reader&, std::vector<v1::BackupResponse>& out) override {
    const auto filled = Fill(out);
    if (!filled) return {.what = Step::kEnd, .status = ToStatus(filled.error())};
    return {.what = *filled ? Step::kMore : Step::kEnd};
  }

  /// Whether there is more.
  Result<bool> Fill(std::vector<v1::BackupResponse>& out) {
    IMGD_TRY(recorded_);
    if (!source_) {
      IMGD_ASSIGN(source_, BackupSource::Make(
                               engine_->state_dir(), engine_->version(), clock_->Wall(),
                               [this] { return IsCancelled(); }, with_ca_));
    }
    while (out.size() < kPiecesAtOnce) {
      IMGD_ASSIGN(std::string piece, source_->Next());
      const bool end = piece.empty();
      auto& response = out.emplace_back();
      if (end) {
        response.set_sha256(source_->Sha256OfAll());
        return false;
      }
      response.set_chunk(std::move(piece));
    }
    return true;
  }

  Engine* engine_;
  const Clock* clock_;
  bool with_ca_;
  std::string actor_;
  std::shared_ptr<std::atomic<bool>> busy_;
  Status recorded_;
  std::optional<BackupSource> source_;
};

/// Of a call that is refused at once.
class RefusedBackup final : public grpc::ServerWriteReactor<v1::BackupResponse> {
 public:
  explicit RefusedBackup(const Error& why) { Finish(ToStatus(why)); }
  void OnDone() override { delete this; }
};

std::string ActorOrNobody(const std::string& actor) { return actor.empty() ? "unknown" : actor; }

}  // namespace

grpc::ServerWriteReactor<v1::BackupResponse>* AdminServiceImpl::Backup(grpc::CallbackServerContext*,
                                                                       const v1::BackupRequest* request) {
  if (const auto within = CheckLimits(*request); !within) return new RefusedBackup(within.error());
  if (busy_->exchange(true)) {
    return new RefusedBackup({.code = ErrorCode::kResourceExhausted,
                              .message = "another backup is being made; try again when it is there"});
  }
  // While every user of this machine may ask, none gets what later signs for imgd.
  return BackupStream::Start(engine_, pool_, clock_, !gate_->IsOpen(), ActorOrNobody(request->actor()),
                             busy_);
}

grpc::ServerUnaryReactor* AdminServiceImpl::Reload(grpc::CallbackServerContext* context,
                                                   const v1::ReloadRequest* request,
                                                   v1::ReloadResponse* response) {
  auto* reactor = context->DefaultReactor();
  if (const auto within = CheckLimits(*request); !within) {
    reactor->Finish(ToStatus(within.error()));
    return reactor;
  }
  // On a reading thread: it reads files.
  const bool posted =
      pool_->TryPost([this, actor = ActorOrNobody(request->actor()), response, reactor](Reader&) {
        reload_(actor, [response, reactor](const ReloadAnswer& answer) {
          if (!answer) {
            reactor->Finish(ToStatus(answer.error()));
            return;
          }
          for (const auto& key : answer->changed) response->add_changed(key);
          for (const auto& key : answer->need_restart) response->add_need_restart(key);
          reactor->Finish(grpc::Status::OK);
        });
      });
  if (!posted) reactor->Finish(ToStatus(Busy()));
  return reactor;
}

void AdminServiceImpl::SetRules(RetentionRules rules) {
  const std::lock_guard lock(mutex_);
  rules_ = rules;
}

grpc::ServerUnaryReactor* AdminServiceImpl::ShowRetention(grpc::CallbackServerContext* context,
                                                          const v1::ShowRetentionRequest*,
                                                          v1::ShowRetentionResponse* response) {
  auto* reactor = context->DefaultReactor();
  const std::lock_guard lock(mutex_);
  const bool posted = pool_->TryPostSlow(
      ReadPool::Lane::kFolders, [rules = rules_, now = clock_->Wall(), response, reactor](Reader& reader) {
        const auto filled = FillRetention(rules, now, reader, *response);
        reactor->Finish(filled ? grpc::Status::OK : ToStatus(filled.error()));
      });
  if (!posted) reactor->Finish(ToStatus(Busy()));
  return reactor;
}

}  // namespace imgd
