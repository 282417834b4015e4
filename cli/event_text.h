#pragma once

#include <string>

#include "cli/app.h"
#include "imgd/v1/event.pb.h"

namespace imgd::cli {

/// The job or the node that the event is about: "job 12", "gpu-3".
std::string SubjectOf(const v1::Event& event);

/// What happened in a word: a state that the job came to, else the reason's name.
std::string WordOf(const v1::Event& event);
Style StyleOf(const v1::Event& event);

}  // namespace imgd::cli
