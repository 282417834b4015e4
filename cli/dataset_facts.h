#pragma once

#include <string>
#include <vector>

#include "cli/app.h"
#include "imgd/v1/dataset_facts.pb.h"
#include "trainer/data/convert_report.h"
#include "trainer/data/verify.h"

namespace imgd::cli {

/// A set, or a part of one, and where it lies.
struct PlacedPart {
  std::string name;   ///< "train", "val"; empty where the set has one part
  std::string where;  ///< as data::OpenDataset takes it
};

/// The parts in the folder or URL (data::PartsOf: train/, and val/ or validation/); else what was named
/// itself.
std::vector<PlacedPart> PlacedPartsOf(const std::string& where);

/// What the parts hold, with some small pictures, within the bounds of common/dataset_limits.h. Errors: those
/// of opening a part; an image that can't be read has no picture.
Result<v1::DatasetContents> ContentsOf(const std::vector<PlacedPart>& parts);

/// Images that a conversion left out.
void AddLeftOut(const data::ConvertReport& report, v1::DatasetContents& out);

/// What was found in one part more.
void AddVerified(const data::VerifyReport& report, v1::DatasetVerification& out);

/// Tells imgd what was found of the set that has that name. It is no error where that can't be, but a
/// warning.
void ReportFacts(Context& context, Client& client, const std::string& name, const std::string& address,
                 v1::DatasetFacts facts);

}  // namespace imgd::cli
