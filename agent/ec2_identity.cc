#include "agent/ec2_identity.h"

#include <spdlog/spdlog.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "common/files.h"
#include "common/labels.h"
#include "common/remote/instance_metadata.h"

namespace imgd {
namespace {

constexpr const char* kKept = "ec2-identity.json";
constexpr size_t kMostDocumentBytes = 64 << 10;

Result<Ec2Identity> ParseIdentity(std::string document, std::string signature) {
  const auto parsed = nlohmann::json::parse(document, nullptr, /*allow_exceptions=*/false);
  const auto field = [&parsed](const char* name) -> std::string {
    if (!parsed.is_object() || !parsed.contains(name) || !parsed[name].is_string()) return "";
    return parsed[name].get<std::string>();
  };
  Ec2Identity identity{.document = std::move(document),
                       .signature = std::move(signature),
                       .instance = field("instanceId"),
                       .labels = {}};
  if (!identity.instance.starts_with("i-") || !IsLabelValue(identity.instance)) {
    return Fail(ErrorCode::kDataLoss, "the instance identity document of EC2 names no instance: {}",
                identity.document.substr(0, 200));
  }
  for (const auto& [label, name] : {std::pair{"instance_type", "instanceType"},
                                    std::pair{"zone", "availabilityZone"}, std::pair{"region", "region"}}) {
    if (std::string value = field(name); IsLabelValue(value)) identity.labels[label] = std::move(value);
  }
  return identity;
}

}  // namespace

std::string Ec2MetadataAddress() {
  const char* given = std::getenv("AWS_EC2_METADATA_SERVICE_ENDPOINT");
  return given != nullptr && *given != '\0' ? given : InstanceMetadata::kAddress;
}

Result<Ec2Identity> FetchEc2Identity(const std::string& endpoint) {
  InstanceMetadata metadata(endpoint);
  std::string texts[2];
  for (const int i : {0, 1}) {
    const std::string path =
        std::string("/latest/dynamic/instance-identity/") + (i == 0 ? "document" : "rsa2048");
    auto found = metadata.Get(path);
    if (!found) {
      return Fail(ErrorCode::kUnavailable, "cannot ask EC2 which instance this is: {}",
                  found.error().message);
    }
    if (!*found)
      return Fail(ErrorCode::kUnavailable, "{}{} is not there: this is no EC2 instance", endpoint, path);
    texts[i] = std::move(**found);
  }
  return ParseIdentity(std::move(texts[0]), std::move(texts[1]));
}

Result<Ec2Identity> OwnEc2Identity(const std::string& endpoint, const std::filesystem::path& folder) {
  const auto path = folder / kKept;
  const auto text = ReadFile(path, kMostDocumentBytes);
  const auto kept = text ? ParseIdentity(*text, "") : Result<Ec2Identity>(tl::unexpected(text.error()));
  auto found = FetchEc2Identity(endpoint);
  if (!found) {
    if (!kept) return found;
    spdlog::warn("msg=\"{}; going on as the instance {}\"", found.error().message, kept->instance);
    return kept;
  }
  if (kept && kept->instance != found->instance) {
    return tl::unexpected(
        Error{.code = ErrorCode::kFailedPrecondition,
              .message = fmt::format("the state folder {} is that of the instance {}, and this one is {}",
                                     folder.native(), kept->instance, found->instance),
              .hint = "an image was made of a node with its state; empty the folder, here and in the image"});
  }
  if (!kept || kept->document != found->document) IMGD_TRY(WriteFileAtomically(path, found->document));
  return found;
}

}  // namespace imgd
