#include "server/web/job_pictures.h"

#include <charconv>
#include <utility>

#include "imgd/v1/job.pb.h"
#include "server/web/errors.h"

namespace imgd::web {
namespace {

template <typename T>
bool ReadInto(const std::string& text, T& out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc() && end == text.data() + text.size();
}

/// The beginning of a JPEG file: what a rank says that is none is not shown as one.
bool IsJpeg(const std::string& bytes) { return bytes.starts_with("\xFF\xD8\xFF"); }

Response PictureOf(const v1::SampleImages& samples, int number) {
  if (number < 0 || number >= samples.images_size() || !IsJpeg(samples.images(number).picture()))
    return ErrorResponse(404, "NOT_FOUND", "there is no picture of that number");
  return {.body = samples.images(number).picture(),
          .content_type = "image/jpeg",
          .headers = {{"Cache-Control", "private, max-age=31536000, immutable"},
                      {"X-Content-Type-Options", "nosniff"}}};
}

}  // namespace

Handler SamplePictureHandler(ApiCaller* caller) {
  const auto* method =
      google::protobuf::DescriptorPool::generated_pool()->FindMethodByName("imgd.v1.JobService.GetSamples");
  return [caller, method](const Request& request, const Answer& answer) {
    auto asked = std::make_unique<v1::GetSamplesRequest>();
    uint64_t id = 0;
    uint64_t event = 0;
    int number = 0;
    // Event 0 would be the newest, which is another tomorrow.
    if (!ReadInto(request.parameters.at("id"), id) || !ReadInto(request.parameters.at("event"), event) ||
        event == 0 || !ReadInto(request.parameters.at("number"), number)) {
      answer(ErrorResponse(400, "INVALID_ARGUMENT",
                           "job, event and picture are whole numbers, the event from 1 on"));
      return;
    }
    asked->set_id(id);
    asked->set_event(event);
    asked->set_pictures(true);
    caller->Call(*method, std::move(asked), request.token, [answer, number](const ApiCaller::Reply& reply) {
      if (!reply) return answer(ApiErrorResponse(reply.error()));
      answer(PictureOf(static_cast<const v1::GetSamplesResponse&>(**reply).samples(), number));
    });
  };
}

}  // namespace imgd::web
