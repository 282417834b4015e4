#pragma once

#include "imgd/v1/trainer.pb.h"
#include "trainer/report/reporter.h"

namespace imgd::report {

// What a report is as an event, without its number and time. Texts that are no UTF-8 get U+FFFD in their
// places.
v1::TrainerEvent EventOf(const Started& x);
v1::TrainerEvent EventOf(const StepFigures& x);
v1::TrainerEvent EventOf(const EpochFigures& x);
v1::TrainerEvent EventOf(const CheckpointFigures& x);
v1::TrainerEvent EventOf(const Profiled& x);
v1::TrainerEvent EventOf(const Finished& x);
v1::TrainerEvent EventOf(const Failed& x);
v1::TrainerEvent EventOf(const BadImage& x);
v1::TrainerEvent EventOf(const ClassFigures& x);
v1::TrainerEvent EventOf(const ShownImages& x);

}  // namespace imgd::report
