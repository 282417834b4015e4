#pragma once

#include <sys/resource.h>
#include <unistd.h>

namespace imgd {

/// Sets the nice number of the calling thread alone, which is how Linux takes a thread's number: -20 goes
/// first, 19 gives way to all. Below its present one only for who may: root, or by LimitNICE= of systemd;
/// where that is refused nothing changes.
inline void SetThreadNice(int nice) {
  static_cast<void>(::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), nice));
}

}  // namespace imgd
