#include "server/web/openapi.h"

#include <google/protobuf/descriptor.h>

#include <nlohmann/json.hpp>
#include <set>

#include "common/dataset_limits.h"
#include "common/version.h"
#include "imgd/v1/report.pb.h"
#include "server/web/api.h"
#include "server/web/downloads.h"
#include "server/web/pictures.h"
#include "server/web/scrape_targets.h"

namespace imgd::web {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using Json = nlohmann::ordered_json;

std::string RefTo(const std::string& message) { return "#/components/schemas/" + message; }

/// Schemas of messages, with those that they hold.
class Schemas {
 public:
  Json RefOf(const Descriptor& message) {
    if (seen_.insert(message.full_name()).second) {
      Json properties = Json::object();
      // In what is asked null is as good as nothing (protobuf's JSON mapping); in an answer there is none.
      const bool may_be_null = message.name().ends_with("Request");
      for (int i = 0; i < message.field_count(); ++i) {
        Json schema = OfField(*message.field(i));
        if (may_be_null) schema = {{"anyOf", Json::array({std::move(schema), Json{{"type", "null"}}})}};
        properties[message.field(i)->name()] = std::move(schema);
      }
      made_[message.name()] = {
          {"type", "object"}, {"properties", std::move(properties)}, {"additionalProperties", false}};
    }
    return {{"$ref", RefTo(message.name())}};
  }

  /// As protobuf's JSON mapping has the field.
  Json OfField(const FieldDescriptor& field) {
    if (field.is_map()) {
      return {{"type", "object"}, {"additionalProperties", OfValue(*field.message_type()->map_value())}};
    }
    if (!field.is_repeated()) return OfValue(field);
    return {{"type", "array"}, {"items", OfValue(field)}};
  }

  Json OfEnum(const google::protobuf::EnumDescriptor& type) {
    if (seen_.insert(type.full_name()).second) {
      Json names = Json::array();
      for (int i = 0; i < type.value_count(); ++i) names.push_back(type.value(i)->name());
      made_[type.name()] = {{"type", "string"}, {"enum", std::move(names)}};
    }
    return {{"$ref", RefTo(type.name())}};
  }

  Json Take() { return std::move(made_); }

 private:
  Json OfValue(const FieldDescriptor& field) {
    switch (field.cpp_type()) {
      case FieldDescriptor::CPPTYPE_INT32:
        return {{"type", "integer"}, {"format", "int32"}};
      case FieldDescriptor::CPPTYPE_UINT32:
        return {{"type", "integer"}, {"minimum", 0}, {"maximum", 4294967295U}};
      case FieldDescriptor::CPPTYPE_INT64:
        return {{"type", "string"}, {"format", "int64"}, {"pattern", "^-?[0-9]{1,18}$"}};
      case FieldDescriptor::CPPTYPE_UINT64:
        return {{"type", "string"}, {"format", "uint64"}, {"pattern", "^[0-9]{1,20}$"}};
      case FieldDescriptor::CPPTYPE_FLOAT:
      case FieldDescriptor::CPPTYPE_DOUBLE:
        return {{"oneOf", {{{"type", "number"}}, {{"enum", {"NaN", "Infinity", "-Infinity"}}}}}};
      case FieldDescriptor::CPPTYPE_BOOL:
        return {{"type", "boolean"}};
      case FieldDescriptor::CPPTYPE_STRING:
        return {{"type", "string"}};
      case FieldDescriptor::CPPTYPE_ENUM:
        return OfEnum(*field.enum_type());
      case FieldDescriptor::CPPTYPE_MESSAGE:
        return field.message_type()->full_name() == "imgd.v1.MetricPoint" ? PointSchema()
                                                                          : RefOf(*field.message_type());
    }
    return Json::object();
  }

  /// See ApiJson() in metrics_json.h.
  static Json PointSchema() {
    return {{"type", "array"},
            {"description", "x, min, max, last, and smooth where it was asked for"},
            {"minItems", 4},
            {"maxItems", 5},
            {"items", {{"type", {"number", "null"}}}}};
  }

  std::set<std::string> seen_;
  Json made_ = Json::object();
};

/// Of a path or a query: numbers are numbers there.
Json ParameterSchema(const FieldDescriptor& field, Schemas& schemas) {
  const auto one = [&]() -> Json {
    switch (field.cpp_type()) {
      case FieldDescriptor::CPPTYPE_INT64:
        return {{"type", "integer"}, {"format", "int64"}};
      case FieldDescriptor::CPPTYPE_UINT64:
        return {{"type", "integer"}, {"minimum", 0}, {"maximum", INT64_MAX}};
      case FieldDescriptor::CPPTYPE_FLOAT:
      case FieldDescriptor::CPPTYPE_DOUBLE:
        return {{"type", "number"}};
      case FieldDescriptor::CPPTYPE_ENUM:
        return schemas.OfEnum(*field.enum_type());
      default:
        return field.is_repeated() ? schemas.OfField(field)["items"] : schemas.OfField(field);
    }
  };
  if (!field.is_repeated()) return one();
  return {{"type", "array"}, {"items", one()}};
}

Json Parameter(const FieldDescriptor& field, const char* in, Schemas& schemas) {
  Json schema = ParameterSchema(field, schemas);
  const bool in_path = in == std::string_view("path");
  if (in_path && field.cpp_type() == FieldDescriptor::CPPTYPE_STRING) schema["minLength"] = 1;
  Json out = {{"name", field.name()}, {"in", in}, {"schema", std::move(schema)}};
  if (in_path) out["required"] = true;
  return out;
}

Json JsonContent(Json schema) { return {{"application/json", {{"schema", std::move(schema)}}}}; }

void AddRefusals(Json& responses) {
  static constexpr std::pair<const char*, const char*> kRefusals[] = {
      {"400", "What was asked is wrong in itself"},
      {"401", "A token that imgd knows is needed"},
      {"403", "The token is not good for this, or a page of another origin asked"},
      {"404", "There is no such thing"},
      {"409", "The name or key is taken"},
      {"412", "It is not in a state for this, or a quota of jobs in the queue is full"},
      {"413", "The body is too long"},
      {"415", "The body is not said to be JSON"},
      {"429", "Too much waits, or nothing can be stored now"},
      {"499", "imgd ended before it answered"},
      {"500", "Something of imgd's, or that it reads, is broken"},
      {"503", "imgd begins or ends"},
      {"504", "It took too long"},
  };
  for (const auto& [status, description] : kRefusals)
    responses[status] = {{"description", description},
                         {"content", JsonContent({{"$ref", RefTo("ErrorAnswer")}})}};
}

Json Operation(const ApiRoute& route, Schemas& schemas) {
  const auto& method = MethodOf(route);
  const Descriptor& request = *method.input_type();
  const std::string_view pattern = route.pattern;
  const bool has_body = std::string_view(route.method) == "POST";
  Json parameters = Json::array();
  for (int i = 0; i < request.field_count(); ++i) {
    const FieldDescriptor& field = *request.field(i);
    if (pattern.find("{" + field.name() + "}") != std::string_view::npos) {
      parameters.push_back(Parameter(field, "path", schemas));
    } else if (!has_body && field.cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) {
      parameters.push_back(Parameter(field, "query", schemas));
    }
  }
  Json responses = {{"200",
                     {{"description", method.output_type()->name()},
                      {"content", JsonContent(schemas.RefOf(*method.output_type()))}}}};
  AddRefusals(responses);
  Json out = {{"operationId", method.name()},
              {"tags", {method.service()->name()}},
              {"x-imgd-scope", std::string(NameOf(ScopeOf(route)))},
              {"parameters", std::move(parameters)}};
  if (has_body) out["requestBody"] = {{"required", false}, {"content", JsonContent(schemas.RefOf(request))}};
  out["responses"] = std::move(responses);
  return out;
}

Json PathParameter(const char* name, Json schema) {
  return {{"name", name}, {"in", "path"}, {"schema", std::move(schema)}, {"required", true}};
}

/// Of no call of gRPC.
Json OtherOperation(const char* id, const char* tag, Scope scope, const char* description,
                    const Json& content, Json parameters = Json::array()) {
  Json responses = {{"200", {{"description", description}, {"content", content}}}};
  AddRefusals(responses);
  return {{"operationId", id},
          {"tags", {tag}},
          {"x-imgd-scope", std::string(NameOf(scope))},
          {"parameters", std::move(parameters)},
          {"responses", std::move(responses)}};
}

/// A file: of no message, and not JSON.
Json FileOperation(const char* id, Scope scope, const char* type, const char* description, Json parameters,
                   const char* tag = "JobService") {
  const Json content = {{type, {{"schema", {{"type", "string"}, {"format", "binary"}}}}}};
  return OtherOperation(id, tag, scope, description, content, std::move(parameters));
}

Json TextContent(const char* type) { return {{type, {{"schema", {{"type", "string"}}}}}}; }

/// Runs that report by themselves.
void AddReports(Json& paths, Schemas& schemas) {
  const auto operation = [&schemas](const char* id, const char* description, const Descriptor& asked,
                                    const Descriptor& answered, Json parameters) {
    Json out = OtherOperation(id, "Reports", Scope::kReport, description,
                              JsonContent(schemas.RefOf(answered)), std::move(parameters));
    out["requestBody"] = {{"required", true}, {"content", JsonContent(schemas.RefOf(asked))}};
    return out;
  };
  paths["/api/v1/reports"]["post"] =
      operation("StartReport", "A run that somebody started by hand has begun",
                *v1::StartReportRequest::descriptor(), *v1::StartReportResponse::descriptor(), Json::array());
  const Json job = {{"type", "integer"}, {"minimum", 1}, {"maximum", INT64_MAX}};
  paths["/api/v1/reports/{job}/events"]["post"] =
      operation("ReportEvents", "What its rank 0 tells", *v1::ReportEventsRequest::descriptor(),
                *v1::ReportEventsResponse::descriptor(), Json::array({PathParameter("job", job)}));
}

/// What browsers and programs that watch ask.
void AddStreamAndSession(Json& paths) {
  const Json last = {{"name", "Last-Event-ID"}, {"in", "header"}, {"schema", {{"type", "string"}}}};
  paths["/api/v1/stream"]["get"] =
      OtherOperation("StreamEvents", "Live", Scope::kView,
                     "Server-Sent Events without an end: event, job, job_gone, step, nodes, datasets, live, "
                     "reset",
                     TextContent("text/event-stream"), Json::array({last}));
  const Json nothing = JsonContent({{"type", "object"}, {"additionalProperties", false}});
  auto& session = paths["/api/v1/session"];
  session["post"] = OtherOperation("BeginSession", "Session", Scope::kView,
                                   "The token of the header became the cookie of a session", nothing);
  session["delete"] =
      OtherOperation("EndSession", "Session", Scope::kOpen, "The cookie is taken back", nothing);
  const Json port = {{"type", "integer"}, {"minimum", 1}, {"maximum", 65535}};
  paths["/api/v1/server"]["get"] =
      OtherOperation("GetServer", "Live", Scope::kView, "Where agents and imgcli reach imgd",
                     JsonContent({{"type", "object"},
                                  {"properties", {{"grpc_port", port}}},
                                  {"required", {"grpc_port"}},
                                  {"additionalProperties", false}}));
  paths["/api/v1/openapi.json"]["get"] = OtherOperation("GetOpenApiDocument", "Live", Scope::kOpen,
                                                        "This document", JsonContent({{"type", "object"}}));
}

/// What looks after imgd asks.
void AddMonitoring(Json& paths) {
  const Json health = {{"type", "object"}, {"properties", {{"status", {{"const", "ok"}}}}}};
  paths["/healthz"]["get"] = OtherOperation("GetHealth", "Monitoring", Scope::kOpen,
                                            "imgd can store what it is told", JsonContent(health));
  paths["/metrics"]["get"] =
      OtherOperation("GetMetricsPage", "Monitoring", Scope::kView,
                     "imgd's own figures, in Prometheus' text format", TextContent("text/plain"));
  Json relayed = OtherOperation("GetRelayedMetricsPage", "Monitoring", Scope::kView,
                                "What the node's agent shows, in the same format", TextContent("text/plain"),
                                Json::array({PathParameter("name", {{"type", "string"}, {"minLength", 1}})}));
  relayed["responses"]["504"]["description"] = "The agent did not answer in time";
  paths[kRelayedMetricsPath]["get"] = std::move(relayed);
  const Json target = {{"type", "object"},
                       {"properties",
                        {{"targets", {{"type", "array"}, {"items", {{"type", "string"}}}}},
                         {"labels", {{"type", "object"}, {"additionalProperties", {{"type", "string"}}}}}}},
                       {"additionalProperties", false}};
  const Json which = {{"name", "relayed"}, {"in", "query"}, {"schema", {{"enum", {"true", "false"}}}}};
  paths["/sd/prometheus"]["get"] =
      OtherOperation("ListScrapeTargets", "Monitoring", Scope::kView,
                     "Where agents show metrics, as Prometheus' HTTP service discovery takes it",
                     JsonContent({{"type", "array"}, {"items", target}}), Json::array({which}));
}

void AddFiles(Json& paths) {
  const Json number = {{"type", "integer"}, {"minimum", 0}, {"maximum", INT64_MAX}};
  const Json text = {{"type", "string"}, {"minLength", 1}};
  paths[kSamplePicturePath]["get"] = FileOperation(
      "GetSamplePicture", Scope::kView, "image/jpeg", "The picture of an image that GetSamples has",
      {PathParameter("id", number), PathParameter("event", number),
       PathParameter("number", {{"type", "integer"}, {"minimum", 0}, {"maximum", 15}})});
  paths[kDatasetPicturePath]["get"] = FileOperation(
      "GetDatasetPicture", Scope::kView, "image/jpeg", "The picture of an image that GetDataset has",
      {PathParameter("name", text),
       PathParameter("described_us", {{"type", "integer"}, {"minimum", 1}, {"maximum", INT64_MAX}}),
       PathParameter("number", {{"type", "integer"}, {"minimum", 0}, {"maximum", kMostDatasetSamples - 1}})},
      "DatasetService");
  Json file =
      FileOperation("GetCheckpointFile", Scope::kSubmit, "application/octet-stream",
                    "A file of a checkpoint that ListCheckpoints has",
                    {PathParameter("id", number), PathParameter("name", text), PathParameter("file", text)});
  file["parameters"].push_back({{"name", "Range"}, {"in", "header"}, {"schema", {{"type", "string"}}}});
  Json& responses = file["responses"];
  responses["206"] = responses["200"];
  responses["206"]["description"] = "The bytes that Range names";
  responses["416"] = responses["404"];
  responses["416"]["description"] = "Range names no byte of the file; Content-Range says how many it has";
  responses["500"]["description"] = "The file is not as its manifest says";
  paths[kCheckpointFilePath]["get"] = std::move(file);
}

std::string MakeDocument() {
  Schemas schemas;
  Json paths = Json::object();
  for (const auto& route : ApiRoutes()) {
    std::string method = route.method;
    for (char& c : method) c = static_cast<char>(c + ('a' - 'A'));
    paths[route.pattern][method] = Operation(route, schemas);
  }
  AddFiles(paths);
  AddReports(paths, schemas);
  AddStreamAndSession(paths);
  AddMonitoring(paths);
  (void)schemas.RefOf(*v1::ErrorAnswer::descriptor());
  const Json document = {
      {"openapi", "3.1.0"},
      {"info",
       {{"title", "imgd"},
        {"version", kVersion},
        {"description",
         "imgd's gRPC services as JSON: protobuf's JSON mapping with the fields' own names. "
         "And what else imgd answers by HTTP, but for the pages of the dashboard"}}},
      {"security", {Json::object(), {{"token", Json::array()}}}},
      {"paths", std::move(paths)},
      {"components",
       {{"securitySchemes", {{"token", {{"type", "http"}, {"scheme", "bearer"}}}}},
        {"schemas", schemas.Take()}}}};
  return document.dump(1) + "\n";
}

}  // namespace

const std::string& OpenApiDocument() {
  static const std::string document = MakeDocument();
  return document;
}

Handler OpenApiHandler() {
  return [](const Request&, const Answer& answer) { answer({.body = OpenApiDocument()}); };
}

}  // namespace imgd::web
