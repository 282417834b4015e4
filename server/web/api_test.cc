#include "server/web/api.h"

#include <google/protobuf/util/json_util.h>

#include <nlohmann/json.hpp>

#include "common/text.h"
#include "imgd/v1/token.grpc.pb.h"
#include "server/rpc/testing/rpc_fixture.h"
#include "server/web/openapi.h"
#include "server/web/routes.h"
#include "server/web/static_files.h"
#include "server/web/testing/http_client.h"

namespace imgd {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using Json = nlohmann::json;

constexpr const char* kAsJson = "Content-Type: application/json\r\n";

/// A daemon that serves plain HTTP on the loopback, where nobody has made a token.
struct ApiTest : RpcTest {
  void SetUp() override {
    RpcTest::SetUp();
    if (HasFatalFailure()) return;
    daemon.reset();
    config.web.listen = "127.0.0.1:0";
    config.web.plain_http = true;
    StartDaemon();
  }
  web::TestAnswer Ask(const std::string& method, const std::string& path, const std::string& body = "",
                      const std::string& headers = kAsJson) {
    web::TestConnection connection(daemon->web_port());
    const auto answer = connection.Ask(method, "/api/v1" + path, body, headers);
    EXPECT_TRUE(answer.has_value()) << method << " " << path;
    return answer.value_or(web::TestAnswer{});
  }
  Json Get(const std::string& path) {
    const auto answer = Ask("GET", path);
    EXPECT_EQ(answer.status, 200) << path << ": " << answer.body;
    return Json::parse(answer.body, nullptr, false);
  }
  /// The number of a new job.
  std::string SubmitJson(const std::string& yaml) {
    const Json body = {{"job_yaml", yaml}, {"owner", "ada"}};
    const auto answer = Ask("POST", "/jobs", body.dump());
    EXPECT_EQ(answer.status, 200) << answer.body;
    return Json::parse(answer.body).at("job").at("id");
  }
  std::string MakeToken(const std::string& scope) {
    v1::CreateTokenRequest request;
    request.add_scopes(scope);
    v1::CreateTokenResponse response;
    Context context;
    const auto status = v1::TokenService::NewStub(channel)->CreateToken(&context, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response.secret();
  }
};

TEST_F(ApiTest, AJobIsSubmittedShownChangedAndCancelled) {
  const std::string id = SubmitJson(kJob);
  EXPECT_EQ(id, "1") << "numbers of 64 bits are strings";
  EXPECT_EQ(Get("/jobs/1")["job"]["name"], "rn50");
  EXPECT_EQ(Get("/jobs/1")["history"][0]["state_change"]["to"], "JOB_STATE_QUEUED");
  SubmitJson(kGang);
  EXPECT_THAT(Get("/jobs")["jobs"], SizeIs(2));
  EXPECT_THAT(Get("/jobs?page_size=1")["jobs"], SizeIs(1));
  EXPECT_EQ(Get("/jobs?page_size=1")["next_page_token"], "2");
  EXPECT_THAT(Get("/jobs?states=JOB_STATE_QUEUED&states=JOB_STATE_RUNNING&owner=ada")["jobs"], SizeIs(2));
  EXPECT_THAT(Get("/jobs?states=JOB_STATE_RUNNING,JOB_STATE_FAILED")["jobs"], IsEmpty());
  EXPECT_THAT(Get("/jobs?name_contains=gan%67")["jobs"], SizeIs(1));
  EXPECT_EQ(Json::parse(
                Ask("POST", "/jobs/1/change", R"({"priority": 7, "actor": "ada"})").body)["job"]["priority"],
            7);
  const auto cancelled = Ask("POST", "/jobs/1/cancel", R"({"actor": "ada"})");
  EXPECT_EQ(Json::parse(cancelled.body)["job"]["state"], "JOB_STATE_CANCELLED");
  const Json events = Get("/events?job_id=1");
  EXPECT_GE(events["events"].size(), 2u);
  EXPECT_EQ(events["events"][0]["to"], "JOB_STATE_QUEUED");
  const Json newest = Get("/events?newest=true&page_size=1");
  EXPECT_THAT(newest["events"], SizeIs(1));
  EXPECT_EQ(Get("/events?after_event=" + newest["events"][0]["number"].get<std::string>())["events"],
            Json::array());
  EXPECT_EQ(Get("/jobs/2/logs")["lines"], Json::array());
  EXPECT_EQ(Get("/jobs/2/metrics?names=loss,top1&x=epoch&points=10&from=&to=")["series"][1]["name"], "top1");
}

TEST_F(ApiTest, TheOtherThingsThatThereAre) {
  EXPECT_EQ(Ask("POST", "/datasets", R"({"dataset": {"name": "in", "address": "/d/in"}})").status, 200);
  EXPECT_EQ(Get("/datasets")["datasets"][0]["address"], "/d/in");
  EXPECT_EQ(Ask("DELETE", "/datasets/in").status, 200);
  EXPECT_EQ(Get("/datasets")["datasets"], Json::array());
  EXPECT_EQ(Get("/nodes")["nodes"], Json::array());
  EXPECT_EQ(Get("/server")["grpc_port"], daemon->port());
  EXPECT_EQ(Get("/usage")["accounts"], Json::array());
  EXPECT_EQ(Get("/tokens")["tokens"], Json::array());
  const auto made = Ask("POST", "/tokens", R"({"name": "page", "scopes": ["admin"]})");
  const std::string bearer =
      "Authorization: Bearer " + Json::parse(made.body)["secret"].get<std::string>() + "\r\n";
  EXPECT_EQ(Ask("GET", "/tokens", "", bearer).status, 200);
  EXPECT_EQ(Ask("GET", "/tokens").status, 401) << "there is a token now: it is needed";
  EXPECT_EQ(Ask("DELETE", "/tokens/page", "", bearer).status, 200);
  EXPECT_EQ(Ask("GET", "/tokens").status, 200);
}

TEST_F(ApiTest, WhatIsRefusedAndHow) {
  SubmitJson(kJob);
  struct Case {
    const char* what;
    const char* method;
    std::string path;
    std::string body;
    int status;
    const char* code;
    const char* words;
  };
  const std::vector<Case> cases = {
      {"no such job", "GET", "/jobs/77", "", 404, "NOT_FOUND", "there is no job 77"},
      {"no number", "GET", "/jobs/x", "", 400, "INVALID_ARGUMENT", "id: found 'x'"},
      {"too large a number", "GET", "/jobs/99999999999999999999", "", 400, "INVALID_ARGUMENT", "id: found"},
      {"a field that there is not", "GET", "/jobs?page_sise=3", "", 400, "INVALID_ARGUMENT", "'page_sise'"},
      {"the same: which was meant", "GET", "/jobs?page_sise=3", "", 400, "INVALID_ARGUMENT",
       "did you mean 'page_size'?"},
      {"a state that there is not", "GET", "/jobs?states=JOB_STATE_RUNING", "", 400, "INVALID_ARGUMENT",
       "did you mean 'JOB_STATE_RUNNING'?"},
      {"no number", "GET", "/jobs?page_size=many", "", 400, "INVALID_ARGUMENT", "page_size: found 'many'"},
      {"a field of the path", "GET", "/jobs/1?id=2", "", 400, "INVALID_ARGUMENT",
       "the path has the field 'id' already"},
      {"another number in the body than in the path", "POST", "/jobs/1/profile", R"({"id": "2", "steps": 1})",
       400, "INVALID_ARGUMENT", "id: found 2 in the body; the path has 1"},
      {"the same number in both", "POST", "/jobs/1/profile", R"({"id": "1", "steps": 1})", 412,
       "FAILED_PRECONDITION", ""},
      {"too large a page", "GET", "/jobs?page_size=9999", "", 400, "INVALID_ARGUMENT", "at most 1000"},
      {"neither true nor false", "GET", "/events?newest=1", "", 400, "INVALID_ARGUMENT", "true or false"},
      {"no UTF-8", "GET", "/jobs?owner=%FF", "", 400, "INVALID_ARGUMENT", "UTF-8 is expected"},
      {"no JSON", "POST", "/jobs", "{\"job_yaml\":\n  nothing}", 400, "INVALID_ARGUMENT",
       "\"line\":2,\"column\":4"},
      {"JSON that is cut", "POST", "/jobs", "{\"job_yaml\": \"", 400, "INVALID_ARGUMENT", "ends too early"},
      {"single quotes", "POST", "/jobs", "{'job_yaml': 'x'}", 400, "INVALID_ARGUMENT", "no JSON here"},
      {"deep JSON", "POST", "/jobs", std::string(5000, '['), 400, "INVALID_ARGUMENT", "nested too deeply"},
      {"a body of another form", "POST", "/jobs", "[1]", 400, "INVALID_ARGUMENT",
       "the body is no JSON object, as"},
      {"a number alone", "POST", "/jobs", " 7", 400, "INVALID_ARGUMENT", "the body is no JSON object, as"},
      {"two fields of which one excludes the other", "POST", "/jobs/1/change",
       R"({"pause": {}, "resume": {}})", 400, "INVALID_ARGUMENT",
       "'resume' is set beside another field that it excludes; only one of pause, resume, move, priority, "
       "time_limit_ms, more_time_ms can be"},
      {"a number in place of an object", "POST", "/jobs/1/change", R"({"pause": 5})", 400, "INVALID_ARGUMENT",
       "pause: found 5; an object is expected"},
      {"a field of the body", "POST", "/jobs", R"({"job_yml": ""})", 400, "INVALID_ARGUMENT",
       "did you mean 'job_yaml'?"},
      {"too large a number in it", "POST", "/jobs/1/profile", R"({"steps": 99999999999})", 400,
       "INVALID_ARGUMENT", "steps: found 99999999999; a whole number of 32 bits is expected"},
      {"a field within", "POST", "/datasets", R"({"dataset": {"adress": ""}})", 400, "INVALID_ARGUMENT",
       "'adress' in 'dataset'"},
      {"a job file with a fault", "POST", "/jobs", R"({"job_yaml": "name: a\ndata: {trian: /d}\n"})", 400,
       "INVALID_ARGUMENT", "\"line\":2"},
      {"a job that has no rank", "POST", "/jobs/1/profile", R"({"steps": 1})", 412, "FAILED_PRECONDITION",
       ""},
      {"a name that is taken", "POST", "/jobs",
       R"({"job_yaml": "name: b\ndata: {train: /d}\n", "idempotency_key": "k"})", 200, "", ""},
      {"the same with another content", "POST", "/jobs",
       R"({"job_yaml": "name: c\ndata: {train: /d}\n", "idempotency_key": "k"})", 409, "ALREADY_EXISTS", ""},
      {"a method that there is not", "PUT", "/jobs", "", 405, "METHOD_NOT_ALLOWED", ""},
      {"a path that there is not", "GET", "/jbos", "", 404, "NOT_FOUND", ""},
      {"too long a body", "POST", "/jobs/1/cancel", std::string(100'000, ' '), 413, "RESOURCE_EXHAUSTED",
       "65536"},
      {"a body where there is none", "GET", "/jobs", "{}", 413, "RESOURCE_EXHAUSTED", "at most 0"},
      {"no such figure", "GET", "/jobs/1/metrics?names=los", "", 400, "INVALID_ARGUMENT",
       "did you mean 'loss'?"},
      {"a range that ends before it begins", "GET", "/jobs/1/metrics?from=5&to=1", "", 400,
       "INVALID_ARGUMENT", "from, to: found 5 and 1; from may not be above to"},
      {"no such axis", "GET", "/jobs/1/metrics?x=mile", "", 400, "INVALID_ARGUMENT", "x: found 'mile'"},
      {"no such rank", "GET", "/jobs/1/logs?rank=4", "", 400, "INVALID_ARGUMENT", "has no rank 4"},
      {"lines of no rank", "GET", "/jobs/1/logs?after_line=4", "", 400, "INVALID_ARGUMENT",
       "rank is missing"},
  };
  for (const auto& c : cases) {
    const auto answer = Ask(c.method, c.path, c.body);
    EXPECT_EQ(answer.status, c.status) << c.what << ": " << answer.body;
    EXPECT_THAT(answer.body, HasSubstr(c.words)) << c.what;
    EXPECT_THAT(answer.head, HasSubstr("Content-Type: application/json")) << c.what;
    if (c.status == 200) continue;
    const Json json = Json::parse(answer.body, nullptr, false);
    ASSERT_TRUE(json.is_object()) << c.what;
    EXPECT_EQ(json["error"]["code"], c.code) << c.what;
  }
  EXPECT_THAT(Ask("PUT", "/jobs").head, HasSubstr("Allow: GET, HEAD, POST"));
  EXPECT_EQ(Get("/jobs")["jobs"].size(), 2u) << "nothing of all this was stored";
}

TEST_F(ApiTest, EachRouteNeedsItsScope) {
  SubmitJson(kJob);
  const std::map<Scope, std::string> tokens = {{Scope::kReport, MakeToken("report")},
                                               {Scope::kView, MakeToken("view")},
                                               {Scope::kSubmit, MakeToken("submit")},
                                               {Scope::kOperate, MakeToken("operate")},
                                               {Scope::kAdmin, MakeToken("admin")}};
  for (const auto& route : web::ApiRoutes()) {
    std::string path = std::string(route.pattern).substr(std::string("/api/v1").size());
    for (const char* name : {"{id}", "{name}"}) {
      if (const size_t at = path.find(name); at != std::string::npos)
        path.replace(at, std::strlen(name), "9");
    }
    EXPECT_EQ(Ask(route.method, path).status, 401) << path;
    for (const auto& [scope, secret] : tokens) {
      const bool may = scope >= ScopeOf(route) && scope != Scope::kReport;
      const auto answer = Ask(route.method, path, "", fmt::format("Authorization: Bearer {}\r\n", secret));
      EXPECT_EQ(answer.status != 401 && answer.status != 403, may)
          << NameOf(scope) << " for " << route.method << " " << path << ": " << answer.body;
    }
  }
  EXPECT_EQ(Ask("GET", "/stream").status, 401);
  EXPECT_EQ(Ask("GET", "/openapi.json").status, 200);
}

TEST_F(ApiTest, WhoLogsOutLeavesNeitherCookieNorPicturesInTheBrowser) {
  const auto left = Ask("DELETE", "/session", "", "");
  EXPECT_EQ(left.status, 200);
  EXPECT_THAT(left.head, HasSubstr("Max-Age=0"));
  EXPECT_THAT(left.head, HasSubstr("Clear-Site-Data: \"cache\"\r\n"));
}

TEST(Routes, ThoseThatAreNoCallsOfGrpcHaveTheScopesThatAreWrittenHere) {
  const std::map<std::string, std::string> written = {
      {"GET /healthz", ""},
      {"GET /api/v1/openapi.json", ""},
      {"GET /api/v1/server", "view"},
      {"GET /api/v1/stream", "view"},
      {"GET /api/v1/jobs/{id}/samples/{event}/{number}", "view"},
      {"GET /api/v1/datasets/{name}/samples/{described_us}/{number}", "view"},
      {"GET /api/v1/jobs/{id}/checkpoints/{name}/files/{file}", "submit"},
      {"POST /api/v1/session", "view"},
      {"DELETE /api/v1/session", ""},
      {"POST /api/v1/reports", "report"},
      {"POST /api/v1/reports/{job}/events", "report"},
      {"GET /metrics", "view"},
      {"GET /metrics/nodes/{name}", "view"},
      {"GET /sd/prometheus", "view"}};
  std::map<std::string, std::string> rest;
  const web::Router router = web::MakeRouter(web::WebParts{});
  for (const auto& route : router.routes()) rest[route.method + " " + route.pattern] = NameOf(route.scope);
  for (const auto& call : web::ApiRoutes())
    EXPECT_EQ(rest.erase(fmt::format("{} {}", call.method, call.pattern)), 1u) << call.pattern;
  for (const auto& file : web::StaticRoutes()) {
    const auto found = rest.find("GET " + file.pattern);
    ASSERT_NE(found, rest.end()) << file.pattern;
    EXPECT_EQ(found->second, "") << "the page itself is public: " << file.pattern;
    rest.erase(found);
  }
  EXPECT_EQ(rest, written);
}

TEST(Routes, AreAllInTheOpenApiDocumentWithTheirScopes) {
  std::map<std::string, std::string> described;
  const Json document = Json::parse(web::OpenApiDocument());
  for (const auto& [path, operations] : document["paths"].items()) {
    for (const auto& [method, operation] : operations.items())
      described[method + " " + path] = operation["x-imgd-scope"];
  }
  std::map<std::string, std::string> served;
  const web::Router router = web::MakeRouter(web::WebParts{});
  for (const auto& route : router.routes())
    served[Lower(route.method) + " " + route.pattern] = NameOf(route.scope);
  for (const auto& file : web::StaticRoutes()) served.erase("get " + file.pattern);
  EXPECT_EQ(described, served);
}

TEST_F(ApiTest, EachRouteIsACallOfGrpcWithItsPathsFields) {
  for (const auto& route : web::ApiRoutes()) {
    const auto* request = web::MethodOf(route).input_type();
    EXPECT_FALSE(web::MethodOf(route).server_streaming()) << route.rpc;
    const std::string pattern = route.pattern;
    for (size_t at = pattern.find('{'); at != std::string::npos; at = pattern.find('{', at + 1)) {
      const std::string name = pattern.substr(at + 1, pattern.find('}', at) - at - 1);
      EXPECT_NE(request->FindFieldByName(name), nullptr) << route.pattern;
    }
  }
  const Json document = Json::parse(web::OpenApiDocument());
  EXPECT_EQ(document["openapi"], "3.1.0");
  EXPECT_EQ(document["paths"]["/api/v1/jobs/{id}"]["get"]["operationId"], "GetJob");
  for (const char* status : {"400", "499", "500", "503", "504"})
    EXPECT_TRUE(document["paths"]["/api/v1/jobs/{id}"]["get"]["responses"].contains(status)) << status;
  const Json& file = document["paths"]["/api/v1/jobs/{id}/checkpoints/{name}/files/{file}"]["get"];
  EXPECT_EQ(file["x-imgd-scope"], "submit");
  EXPECT_TRUE(file["responses"]["206"]["content"].contains("application/octet-stream"));
  EXPECT_EQ(file["responses"]["500"]["description"], "The file is not as its manifest says");
  const Json& schemas = document["components"]["schemas"];
  EXPECT_EQ(schemas["Job"]["properties"]["id"]["type"], "string");
  EXPECT_EQ(schemas["CancelJobRequest"]["properties"]["actor"]["anyOf"],
            Json::parse(R"([{"type": "string"}, {"type": "null"}])"))
      << "null is as good as nothing";
}

}  // namespace
}  // namespace imgd
