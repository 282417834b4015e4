#pragma once

#include <csetjmp>
#include <cstddef>
#include <cstdio>
// jpeglib.h needs size_t and FILE from the lines above.
#include <jpeglib.h>

#include <type_traits>

namespace imgd::data {

/// libjpeg's error manager that neither prints nor exits: Guard() returns false and message() says why.
/// Must be the error manager of one libjpeg object only, and not be moved.
class JpegErrors {
 public:
  /// With `strict`, data that end too early are errors; libjpeg itself only warns and makes up the rest.
  explicit JpegErrors(bool strict) : strict_(strict) {}
  JpegErrors(const JpegErrors&) = delete;
  JpegErrors& operator=(const JpegErrors&) = delete;

  jpeg_error_mgr* Install();

  /// Calls f, which calls libjpeg; false if libjpeg gave up. f must not make anything with a destructor:
  /// longjmp leaves it without unwinding.
  template <typename F>
  bool Guard(F f) {
    static_assert(std::is_trivially_destructible_v<F>);
    if (setjmp(landing_) != 0) return false;
    f();
    return true;
  }

  /// libjpeg's own sentence about the last failure.
  const char* message() const { return message_; }

  /// What libjpeg warned of, in its own words, since ForgetWarnings(); empty: nothing. The first that tells
  /// of pixels that may be others than were coded, and the first of any kind.
  const char* damage() const { return damage_; }
  const char* warning() const { return warning_; }
  void ForgetWarnings() { damage_[0] = warning_[0] = '\0'; }

  /// Gives up from within a callback of libjpeg, with a sentence of ours.
  [[noreturn]] void GiveUp(const char* message);

 private:
  static JpegErrors& Of(j_common_ptr object);
  static void OnError(j_common_ptr object);
  static void OnMessage(j_common_ptr object, int level);

  jpeg_error_mgr manager_{};
  std::jmp_buf landing_{};
  char message_[JMSG_LENGTH_MAX] = "";
  char damage_[JMSG_LENGTH_MAX] = "";
  char warning_[JMSG_LENGTH_MAX] = "";
  bool strict_;
};

}  // namespace imgd::data
