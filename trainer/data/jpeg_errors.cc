#include "trainer/data/jpeg_errors.h"

#include <jerror.h>

namespace imgd::data {
namespace {

/// Other warnings are of the header, or of bytes that no pixel comes from.
bool IsDamage(int code) {
  return code == JWRN_HUFF_BAD_CODE || code == JWRN_ARITH_BAD_CODE || code == JWRN_MUST_RESYNC ||
         code == JWRN_BOGUS_PROGRESSION || code == JWRN_HIT_MARKER;
}

}  // namespace

jpeg_error_mgr* JpegErrors::Install() {
  jpeg_std_error(&manager_);
  manager_.error_exit = &JpegErrors::OnError;
  manager_.emit_message = &JpegErrors::OnMessage;
  manager_.output_message = [](j_common_ptr) {};
  return &manager_;
}

void JpegErrors::GiveUp(const char* message) {
  std::snprintf(message_, sizeof(message_), "%s", message);
  std::longjmp(landing_, 1);
}

JpegErrors& JpegErrors::Of(j_common_ptr object) {
  // manager_ is the first member of a standard-layout class.
  static_assert(std::is_standard_layout_v<JpegErrors>);
  return *reinterpret_cast<JpegErrors*>(object->err);
}

void JpegErrors::OnError(j_common_ptr object) {
  JpegErrors& self = Of(object);
  self.manager_.format_message(object, self.message_);
  std::longjmp(self.landing_, 1);
}

void JpegErrors::OnMessage(j_common_ptr object, int level) {
  JpegErrors& self = Of(object);
  if (level >= 0) return;
  ++self.manager_.num_warnings;
  const int code = self.manager_.msg_code;
  if (self.warning_[0] == '\0') self.manager_.format_message(object, self.warning_);
  if (self.damage_[0] == '\0' && IsDamage(code)) self.manager_.format_message(object, self.damage_);
  if (!self.strict_) return;
  if (code == JWRN_JPEG_EOF || code == JWRN_HIT_MARKER) OnError(object);
}

}  // namespace imgd::data
