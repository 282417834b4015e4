#pragma once

#include "trainer/data/dataset.h"
#include "trainer/report/class_figures.h"
#include "trainer/report/reporter.h"

namespace imgd::trainer {

/// What a validation pass found of single images, as people see it, with small pictures; those that can't be
/// made are left empty. Reads up to 16 images.
report::ShownImages ShownImagesOf(const report::ClassFigures& figures, const data::Dataset& set);

}  // namespace imgd::trainer
