#include "server/rpc/job_file_cache.h"

namespace imgd {

tl::expected<JobSpec, std::vector<Error>> JobFileCache::Parse(const std::string& text,
                                                              const std::string& file) {
  Key key(text, file);
  {
    const std::lock_guard lock(mutex_);
    if (const auto known = known_.find(key); known != known_.end()) return known->second;
  }
  auto spec = ParseJobFile(text, file);
  if (!spec || text.size() > kMostBytes) return spec;
  const std::lock_guard lock(mutex_);
  if (!known_.emplace(key, *spec).second) return spec;
  order_.push_back(std::move(key));
  if (order_.size() > kMostFiles) {
    known_.erase(order_.front());
    order_.pop_front();
  }
  return spec;
}

}  // namespace imgd
