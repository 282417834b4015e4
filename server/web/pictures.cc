#include "server/web/pictures.h"

#include <charconv>
#include <utility>

#include "imgd/v1/dataset.pb.h"
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

/// Of messages that have a `picture`.
template <typename Images>
Response PictureOf(const Images& images, int number) {
  if (number < 0 || number >= images.size() || !IsJpeg(images.Get(number).picture()))
    return ErrorResponse(404, "NOT_FOUND", "there is no picture of that number");
  return {.body = images.Get(number).picture(),
          .content_type = "image/jpeg",
          .headers = {{"Cache-Control", "private, max-age=31536000, immutable"},
                      {"X-Content-Type-Options", "nosniff"}}};
}

const google::protobuf::MethodDescriptor* Method(const char* name) {
  return google::protobuf::DescriptorPool::generated_pool()->FindMethodByName(name);
}

}  // namespace

Handler SamplePictureHandler(ApiCaller* caller) {
  const auto* method = Method("imgd.v1.JobService.GetSamples");
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
      answer(PictureOf(static_cast<const v1::GetSamplesResponse&>(**reply).samples().images(), number));
    });
  };
}

Handler DatasetPictureHandler(ApiCaller* caller) {
  const auto* method = Method("imgd.v1.DatasetService.GetDataset");
  return [caller, method](const Request& request, const Answer& answer) {
    auto asked = std::make_unique<v1::GetDatasetRequest>();
    int64_t described = 0;
    int number = 0;
    if (!ReadInto(request.parameters.at("described_us"), described) || described <= 0 ||
        !ReadInto(request.parameters.at("number"), number)) {
      answer(ErrorResponse(400, "INVALID_ARGUMENT",
                           "time and picture are whole numbers, the time that of the samples"));
      return;
    }
    asked->set_name(request.parameters.at("name"));
    asked->set_described_us(described);
    asked->set_pictures(true);
    caller->Call(*method, std::move(asked), request.token, [answer, number](const ApiCaller::Reply& reply) {
      if (!reply) return answer(ApiErrorResponse(reply.error()));
      answer(PictureOf(static_cast<const v1::GetDatasetResponse&>(**reply).facts().contents().samples(),
                       number));
    });
  };
}

}  // namespace imgd::web
