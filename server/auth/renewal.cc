#include "server/auth/renewal.h"

#include <spdlog/spdlog.h>

namespace imgd {

Renewal::Renewal(Authority* authority, Duration period, std::function<void()> renewed)
    : authority_(authority), period_(period), renewed_(std::move(renewed)), thread_([this] { Run(); }) {}

Renewal::~Renewal() {
  {
    const std::lock_guard lock(mutex_);
    end_ = true;
  }
  ended_.notify_all();
  thread_.join();
}

void Renewal::Run() {
  std::unique_lock lock(mutex_);
  while (!ended_.wait_for(lock, period_, [this] { return end_; })) {
    lock.unlock();
    const auto made = authority_->RenewServer();
    if (!made) {
      spdlog::warn("msg=\"the server's certificate could not be renewed: {}\"", made.error().ToString());
    } else if (*made) {
      spdlog::info("certificate={} msg=\"the server's certificate was renewed\"",
                   authority_->certificate_path().native());
      renewed_();
    }
    lock.lock();
  }
}

}  // namespace imgd
