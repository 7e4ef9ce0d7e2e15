// Goal: the face of the server keeps the promises of the API's transport: who may call from where, which headers every
// answer has, what each wrong method, path, type and body gets, what is said about models, also while they load.
#include "server/test_serve.h"

#include "api/limits.h"
#include "net/test_certificate.h"
#include "server/http_guard.h"

namespace headrace {
namespace {

using testing::AnyOf;
using testing::HasSubstr;
using testing::Not;

// ---- rules about headers -------------------------------------------------------------------------------------------

// T16
TEST(HttpGuard, AKeylessServerAnswersToAddressesAndLocalNamesOnly) {
  for (const char* host : {"", "127.0.0.1", "127.0.0.1:8080", "[::1]:8080", "[::1]", "10.1.2.3:80", "localhost",
                           "LOCALHOST:1", "a.localhost:80", "printer.local", "my.box:8080"}) {
    EXPECT_TRUE(CheckHostHeader(host, "my.box")) << host;
  }
  for (const char* host : {"evil.example", "evil.example:8080", "localhost.evil.example", "127.0.0.1.evil.example",
                           "local", "xlocalhost", "[::1", "1.2.3", "my.box.evil"}) {
    EXPECT_FALSE(CheckHostHeader(host, "my.box")) << host;
  }
}

// Behind a name of the LAN or of a compose file a keyless server was out of reach.
TEST(HttpGuard, HostNamesAndOriginsCanBeAllowed) {
  const std::vector<std::string> hosts = {"Box.lan", "headrace:8080"}, any = {"*"};
  for (const char* host : {"box.lan", "BOX.LAN:80", "headrace", "headrace:9000"})
    EXPECT_TRUE(CheckHostHeader(host, "0.0.0.0", hosts)) << host;
  for (const char* host : {"evil.example", "a.box.lan", "box.lan.evil.example"})
    EXPECT_FALSE(CheckHostHeader(host, "0.0.0.0", hosts)) << host;
  EXPECT_TRUE(CheckHostHeader("evil.example", "0.0.0.0", any));
  EXPECT_THAT(CheckHostHeader("box.lan:80", "0.0.0.0").error().message, HasSubstr("--allowed-host box.lan "));

  const auto from = [](const std::string& value) { return HttpRequest{.headers = {{"Origin", value}}}; };
  const std::vector<std::string> origins = {"https://Chat.example/", "http://box.lan:3000"};
  for (const char* page : {"https://chat.example", "http://box.lan:3000", "http://localhost:1"}) {
    EXPECT_EQ(FindHeader(CorsHeaders(from(page), origins), "access-control-allow-origin"), page);
    EXPECT_FALSE(PreflightHeaders(from(page), origins).empty());
    EXPECT_TRUE(IsJsonBody(from(page), origins));
  }
  for (const char* page : {"http://chat.example", "http://box.lan", "https://chat.example.evil"}) {
    EXPECT_TRUE(CorsHeaders(from(page), origins).empty()) << page;
    EXPECT_FALSE(IsJsonBody(from(page), origins)) << page;
  }
  EXPECT_EQ(FindHeader(CorsHeaders(from("http://evil.example"), any), "access-control-allow-origin"),
            "http://evil.example");
  EXPECT_TRUE(CheckAllowedNames(hosts, origins));
  EXPECT_TRUE(CheckAllowedNames(any, any));
  for (const char* host : {"http://box.lan", "box.lan/v1", ""})
    EXPECT_FALSE(CheckAllowedNames(std::vector<std::string>{host}, {})) << host;
  for (const char* origin : {"chat.example", "https://", "https://chat.example/page", "://x", ""})
    EXPECT_FALSE(CheckAllowedNames({}, std::vector<std::string>{origin})) << origin;
}

// T15
TEST(HttpGuard, OnlyPagesFromLoopbackMayRead) {
  const auto origin = [](const std::string& value) {
    return HttpRequest{
        .headers = {{"Origin", value}, {"Access-Control-Request-Headers", "authorization,x-stainless-os"}}};
  };
  for (const char* page : {"http://localhost", "http://localhost:3000", "https://127.0.0.1:8443", "http://[::1]:5173",
                           "http://app.localhost"}) {
    EXPECT_EQ(FindHeader(CorsHeaders(origin(page)), "access-control-allow-origin"), page);
    EXPECT_EQ(FindHeader(PreflightHeaders(origin(page)), "access-control-allow-headers"),
              "authorization,x-stainless-os");
  }
  for (const char* page : {"", "null", "http://evil.example", "http://localhost.evil.example",
                           "http://127.0.0.1.evil.example", "localhost", "http://127.evil"}) {
    EXPECT_TRUE(CorsHeaders(origin(page)).empty()) << page;
    EXPECT_TRUE(PreflightHeaders(origin(page)).empty()) << page;
  }
}

TEST(HttpGuard, JsonBodies) {
  for (const char* type : {"", "application/json", "Application/JSON ; charset=UTF-8",
                           "application/json;charset=\"utf8\"", "application/problem+json"})
    EXPECT_TRUE(IsJsonContentType(type)) << type;
  for (const char* type : {"text/plain", "application/x-www-form-urlencoded", "application/jsonx",
                           "application/json; charset=utf-16", "application/json; charset=latin1"}) {
    EXPECT_FALSE(IsJsonContentType(type)) << type;
  }
  // A page of another site can send a typeless body without a preflight.
  EXPECT_TRUE(IsJsonBody({.headers = {{"Origin", "http://localhost:3000"}}}));
  EXPECT_FALSE(IsJsonBody({.headers = {{"Origin", "http://evil.example"}}}));
}

TEST(HttpGuard, PercentDecode) {
  EXPECT_EQ(PercentDecode("a%2Fb%2fc"), "a/b/c");
  EXPECT_EQ(PercentDecode("100%"), "100%");
  EXPECT_EQ(PercentDecode("%4"), "%4");
  EXPECT_EQ(PercentDecode("%zz%25"), "%zz%");
  EXPECT_EQ(PercentDecode("%00"), std::string(1, '\0'));
}

// ---- transport -----------------------------------------------------------------------------------------------------

class ServerTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    served_ = new Served(kPlainScript, [](ServeOptions& o) { o.served_model_names = {"m", "org/alias"}; });
    served_->Ready();
  }
  static void TearDownTestSuite() { delete std::exchange(served_, nullptr); }
  void TearDown() override { served_->ExpectAlive(); }
  static const Served& S() { return *served_; }

 private:
  static inline Served* served_ = nullptr;
};

// T1
TEST_F(ServerTest, QueriesAndSlashesDoNotMatter) {
  for (const char* path :
       {"/v1/models", "/v1/models/", "/v1/models?beta=true", "/v1//models", "//v1/models", "/v1/models/?a=b"})
    EXPECT_EQ(S().Get(path).status, 200) << path;
  for (const char* path : {"/v1/chat/completions?beta=true", "/v1/chat/completions/", "/v1//chat/completions"})
    EXPECT_EQ(S().Post(path, ChatText("x")).status, 200) << path;
}

// T2, T8: any key is taken when none is configured; a safe request id comes back, another does not.
TEST_F(ServerTest, AnyKeyIsTakenAndRequestIdsComeBack) {
  EXPECT_EQ(S().Post("/v1/chat/completions", ChatText("x"), "Authorization: Bearer dummy\r\n").status, 200);
  EXPECT_THAT(S().Get("/version", "X-Request-Id: my-id_1.2\r\n").head, HasSubstr("X-Request-Id: my-id_1.2\r\n"));
  EXPECT_THAT(S().Post("/v1/chat/completions", ChatText("x"), "X-Request-Id: abc\r\n").body, HasSubstr("chatcmpl-abc"));
  for (const std::string& id :
       {std::string("a b"), std::string("a\"b"), std::string("<x>"), std::string(200, 'x'), std::string("\xff")}) {
    EXPECT_THAT(S().Get("/version", "X-Request-Id: " + id + "\r\n").head, Not(HasSubstr("X-Request-Id: " + id))) << id;
  }
}

// T3, T4, T9: a wrong path, method or type is refused before the body; nothing there is worth a retry.
TEST_F(ServerTest, WrongPathsMethodsAndTypes) {
  ExpectError(S().Get("/v1/nothing"), 404, "not_found", "", "There is nothing at /v1/nothing");
  ExpectError(S().Get("/%0d%0aforged"), 404, "not_found");
  const auto wrong = S().Get("/v1/chat/completions");
  ExpectError(wrong, 405, "", "", "use POST, OPTIONS");
  EXPECT_THAT(wrong.head, HasSubstr("Allow: POST, OPTIONS\r\n"));
  EXPECT_THAT(S().Post("/v1/models", "{}").head, HasSubstr("Allow: GET, HEAD, OPTIONS\r\n"));
  ExpectError(S().Ask("PUT", "/v1/models/m"), 405, "");
  ExpectError(S().Post("/v1/chat/completions", ChatText("x"), "Content-Type: text/plain\r\n"), 415, "", "",
              "application/json");
  ExpectError(S().Post("/v1/chat/completions", ChatText("x"), "Content-Type: application/json; charset=utf-16\r\n"),
              415, "");
  for (const char* body :
       {"", "{", "[]", "null", "\"x\"", "{\"model\":\"m\"} x", "{\"model\":\xff}", "\xef\xbb\xbf{"}) {
    const auto answer = S().Post("/v1/chat/completions", body);
    EXPECT_EQ(answer.status, 400) << body;
    EXPECT_THAT(answer.head, HasSubstr("x-should-retry: false"));
  }
  EXPECT_EQ(S().Post("/v1/chat/completions", std::string(200'000, '[')).status, 400);
}

TEST_F(ServerTest, HeadAnswersLikeGetWithoutABody) {
  const auto answer = S().Ask("HEAD", "/v1/models");
  EXPECT_EQ(answer.status, 200);
  EXPECT_THAT(answer.head, HasSubstr("Content-Length: "));
  EXPECT_EQ(S().Ask("HEAD", "/v1/chat/completions").status, 405);
}

// T15
TEST_F(ServerTest, PreflightAdmitsTheSdksHeadersFromLoopbackOnly) {
  const std::string ask =
      "Access-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: "
      "authorization,content-type,x-stainless-lang\r\n";
  const auto ours = S().Ask("OPTIONS", "/v1/chat/completions", "", "Origin: http://localhost:3000\r\n" + ask);
  EXPECT_EQ(ours.status, 204);
  EXPECT_THAT(ours.head, HasSubstr("Access-Control-Allow-Origin: http://localhost:3000\r\n"));
  EXPECT_THAT(ours.head, HasSubstr("x-stainless-lang"));
  EXPECT_THAT(S().Ask("OPTIONS", "/v1/chat/completions", "", "Origin: http://evil.example\r\n" + ask).head,
              Not(HasSubstr("Access-Control")));
  const auto chat = S().Post("/v1/chat/completions", ChatText("x"), "Origin: http://127.0.0.1:5173\r\n");
  EXPECT_THAT(chat.head, HasSubstr("Access-Control-Expose-Headers: X-Request-Id"));
  const auto foreign = S().Post("/v1/chat/completions", ChatText("x"), "Origin: http://evil.example\r\n");
  EXPECT_THAT(foreign.head, Not(HasSubstr("Access-Control")));
}

// T16
TEST_F(ServerTest, AnotherNameInHostIsRefused) {
  RawClient client(S().port);
  const auto answer = client.Ask("GET /v1/models HTTP/1.1\r\nHost: evil.example:8080\r\n\r\n");
  ExpectError(answer, 403, "permission_denied", "Host", "--api-key-file");
  EXPECT_THAT(answer.head, HasSubstr("X-Request-Id: "));
}

// L4
TEST_F(ServerTest, BestOfGeneratesMoreThanItReturns) {
  const auto answer = S().Complete("[\"x\",\"y\"]", R"("n":2,"best_of":4,"max_tokens":3)");
  ASSERT_EQ(answer.status, 200) << answer.body;
  const Json body = Parsed(answer.body);
  ASSERT_EQ(body["choices"].size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(body["choices"][i]["index"], i);
    EXPECT_EQ(body["choices"][i]["text"], "abc");
    EXPECT_TRUE(body["choices"][i]["logprobs"].is_null());
  }
  EXPECT_EQ(body["usage"]["completion_tokens"], 24);
}

TEST(AllowedNames, ReachTheServerThatWasToldThem) {
  Served served(kPlainScript, [](ServeOptions& o) {
    o.allowed_hosts = {"box.lan"};
    o.allowed_origins = {"https://chat.example"};
  });
  RawClient named(served.port), other(served.port);
  EXPECT_EQ(named.Ask("GET /v1/models HTTP/1.1\r\nHost: box.lan:8080\r\n\r\n").status, 200);
  ExpectError(other.Ask("GET /v1/models HTTP/1.1\r\nHost: evil.example\r\n\r\n"), 403, "permission_denied", "Host",
              "--allowed-host evil.example");
  EXPECT_THAT(served.Get("/v1/models", "Origin: https://chat.example\r\n").head,
              HasSubstr("Access-Control-Allow-Origin: https://chat.example\r\n"));
  EXPECT_THAT(served.Ready().Post("/v1/chat/completions", ChatText("x"), "Origin: https://chat.example\r\n").head,
              HasSubstr("Access-Control-Allow-Origin: https://chat.example\r\n"));
}

// T8: what net itself refuses has an id and the same body too.
TEST_F(ServerTest, ProtocolErrorsHaveTheSameShape) {
  for (const char* bytes : {"NONSENSE\r\n\r\n", "GET / HTTP/3.0\r\n\r\n",
                            "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: x\r\n\r\n",
                            "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: "
                            "1\r\nTransfer-Encoding: chunked\r\n\r\n"}) {
    RawClient client(S().port);
    const auto answer = client.Ask(bytes);
    EXPECT_GE(answer.status, 400) << bytes;
    EXPECT_TRUE(Parsed(answer.body)["error"].contains("code"));
    EXPECT_THAT(answer.head, HasSubstr("X-Request-Id: "));
  }
}

// ---- models --------------------------------------------------------------------------------------------------------

// M1, M3, M4
TEST_F(ServerTest, ModelsAndTheirNames) {
  const Json list = Parsed(S().Get("/v1/models").body);
  EXPECT_EQ(list["object"], "list");
  ASSERT_EQ(list["data"].size(), 2u);
  for (const Json& model : list["data"]) {
    EXPECT_EQ(model["object"], "model");
    EXPECT_TRUE(model["created"].is_number_integer());
    EXPECT_TRUE(model["owned_by"].is_string());
    EXPECT_EQ(model["max_model_len"], 4096);
  }
  EXPECT_EQ(list["data"][1]["id"], "org/alias");
  const Json answer = Parsed(S().Post("/v1/completions", R"({"model":"org/alias","prompt":"x"})").body);
  EXPECT_EQ(answer["model"], "org/alias");
}

// M2, T5, O-39
TEST_F(ServerTest, OneModelByItsNameAndNoOtherFile) {
  EXPECT_EQ(Parsed(S().Get("/v1/models/m").body)["id"], "m");
  EXPECT_EQ(S().Get("/v1/models/m/").status, 200);
  EXPECT_EQ(S().Get("/v1/models/org/alias").status, 200);
  EXPECT_EQ(S().Get("/v1/models/org%2Falias").status, 200);
  for (const std::string& name : {std::string("../../outside"), std::string("..%2f..%2foutside"),
                                  std::string("/etc/passwd"), std::string("sha256:../x"), std::string("%00"),
                                  std::string(5000, 'x'), std::string("m."), std::string("M"), std::string("%ff%fe")}) {
    ExpectError(S().Get("/v1/models/" + name), 404, "model_not_found", "model");
  }
  EXPECT_EQ(S().Ask("DELETE", "/v1/models/m").status, 403);
  const auto unknown = S().Post("/v1/chat/completions", R"({"model":"n","messages":[{"role":"user","content":"x"}]})");
  ExpectError(unknown, 404, "model_not_found", "model", "Did you mean 'm'?");
  ExpectError(S().Post("/tokenize", R"({"model":"n","prompt":"x"})"), 404, "model_not_found", "model");
}

TEST_F(ServerTest, TokenizeAndBack) {
  const Json chat = Parsed(S().Post("/tokenize", R"({"model":"m","messages":[{"role":"user","content":"x"}]})").body);
  EXPECT_GT(chat["count"], 1);
  EXPECT_EQ(chat["max_model_len"], 4096);
  const Json ids = Parsed(S().Post("/tokenize", R"({"prompt":"héllo 🫠","return_token_strs":true})").body);
  EXPECT_EQ(ids["count"], 11);
  EXPECT_EQ(ids["token_strs"].size(), 11u);
  const auto back = S().Post("/detokenize", R"({"tokens":)" + ids["tokens"].dump() + "}");
  EXPECT_EQ(Parsed(back.body)["prompt"], "héllo 🫠");
  ExpectError(S().Post("/detokenize", R"({"tokens":[-1]})"), 400, "invalid_value");
  ExpectError(S().Post("/detokenize", R"({"tokens":[262]})"), 400, "invalid_value");
  ExpectError(S().Post("/tokenize", "{}"), 400, "invalid_value", "prompt");
}

// C7: the model goes on inside the final message instead of beginning a turn.
TEST_F(ServerTest, TheFinalMessageIsContinued) {
  const auto body = [](const std::string& fields) {
    return R"({"model":"m","messages":[{"role":"user","content":"x"},{"role":"assistant","content":"It is"}],)" +
           fields + "}";
  };
  const auto ends_with = [](const Json& answer, const std::string& text) {
    std::string bytes;
    for (const Json& id : answer["tokens"]) bytes += id < 256 ? std::string(1, static_cast<char>(id.get<int>())) : "#";
    return bytes.ends_with(text);
  };
  const Json whole = Parsed(S().Post("/tokenize", body(R"("add_generation_prompt":true)")).body);
  EXPECT_TRUE(ends_with(whole, "It is#\n#assistant\n")) << whole;
  const Json bare = Parsed(S().Post("/tokenize", body(R"("add_generation_prompt":false)")).body);
  EXPECT_TRUE(ends_with(bare, "It is#\n")) << bare;
  const std::string continued = R"("continue_final_message":true)";
  const Json inside = Parsed(S().Post("/tokenize", body(continued)).body);
  EXPECT_TRUE(ends_with(inside, "It is")) << inside;
  for (const std::string& fields : {continued, continued + R"(,"add_generation_prompt":false)"}) {
    const Json answer = Parsed(S().Post("/v1/chat/completions", body(fields)).body);
    EXPECT_EQ(answer["usage"]["prompt_tokens"], inside["count"]);
    EXPECT_EQ(answer["choices"][0]["message"]["role"], "assistant");
  }
  ExpectError(S().Post("/v1/chat/completions", body(continued + R"(,"add_generation_prompt":true)")), 400,
              "invalid_value", "continue_final_message");
  ExpectError(S().Chat("x", continued), 400, "invalid_value", "continue_final_message");
}

TEST_F(ServerTest, HealthVersionAndMetrics) {
  EXPECT_EQ(Parsed(S().Get("/health").body)["status"], "ok");
  EXPECT_EQ(S().Get("/ready").status, 200);
  EXPECT_TRUE(Parsed(S().Get("/version").body)["version"].is_string());
  S().Chat("x");
  const std::string metrics = S().Get("/metrics").body;
  for (const char* name :
       {"headrace_requests_total{route=\"chat\",status=\"200\"}", "headrace_time_to_first_token_seconds_bucket",
        "headrace_generated_tokens_total", "vllm:num_requests_running{", "vllm:num_requests_waiting{",
        "vllm:kv_cache_usage_perc{", "vllm:prefix_cache_queries_total{", "vllm:prefix_cache_hits_total{",
        "vllm:spec_decode_num_draft_tokens_total{", "vllm:spec_decode_num_accepted_tokens_total{",
        "headrace_spec_drafted_tokens_total ", "headrace_spec_accepted_tokens_total ",
        "headrace_prefix_cache_hit_tokens_total ", "headrace_prefix_cache_evictions_total "}) {
    EXPECT_THAT(metrics, HasSubstr(name));
  }
}

// T7
TEST_F(ServerTest, UnknownFieldsPassAndForeignOnesAreRefused) {
  EXPECT_EQ(S().Chat("x", R"("frobnicate":{"a":1},"x_vendor":true)").status, 200);
  EXPECT_GE(S().Metric("headrace_unknown_fields_total"), 2);
  for (const char* fields : {R"("guided_grammar":"root ::= x")", R"("response_format":{"type":"structural_tag"})",
                             R"("tools":[{"type":"function","function":{"name":"f"}}])"}) {
    EXPECT_EQ(S().Chat("x", fields).status, 400) << fields;
  }
}

// ---- structured output ---------------------------------------------------------------------------------------------

// Of the script's model, which would say something else.
TEST_F(ServerTest, AnswersAreWhatTheRequestSaysTheyMustBe) {
  const auto content = [&](const std::string& fields) {
    const auto answer = S().Chat("x", fields + R"(,"max_tokens":600)");
    EXPECT_EQ(answer.status, 200) << fields << answer.body;
    const Json json = Json::parse(answer.body);
    EXPECT_EQ(json["choices"][0]["finish_reason"], "stop") << answer.body;
    return json["choices"][0]["message"]["content"].get<std::string>();
  };
  constexpr char kSchema[] =
      R"({"type":"object","properties":{"a":{"enum":[1,22]},"b":{"const":"y"}},"required":["a","b"],"additionalProperties":false})";
  const std::string schema = kSchema;
  for (const std::string& fields :
       {R"("response_format":{"type":"json_schema","json_schema":{"name":"n","strict":true,"schema":)" + schema + "}}",
        R"("structured_outputs":{"json":)" + schema + "}", R"("guided_json":)" + Json(schema).dump()}) {
    const Json json = Json::parse(content(fields));
    EXPECT_TRUE(json["a"] == 1 || json["a"] == 22) << json;
    EXPECT_EQ(json["b"], "y");
    EXPECT_EQ(json.size(), 2u);
  }
  EXPECT_THAT(content(R"x("structured_outputs":{"choice":["left","right \"x\""]})x"), AnyOf("left", "right \"x\""));
  EXPECT_EQ(content(R"("guided_regex":"[0-9]{3}-x")").size(), 5u);
  EXPECT_EQ(content(R"x("guided_grammar":"start: \"a\" (\"b\" | \"c\")")x").size(), 2u);
  const auto several = S().Chat("x", R"("guided_regex":"[0-9]{3}-x","n":3)");
  for (const Json& choice : Json::parse(several.body)["choices"])
    EXPECT_EQ(choice["message"]["content"].get<std::string>().size(), 5u);
}

TEST_F(ServerTest, WhatCannotBeEnforcedIs400BeforeAnythingIsGenerated) {
  const double before = S().Metric("headrace_generated_tokens_total");
  const auto refused = [&](const char* fields, const char* param, const char* why) {
    const auto answer = S().Chat("x", fields);
    ExpectError(answer, 400, "invalid_value");
    const Json error = Json::parse(answer.body)["error"];
    EXPECT_EQ(error["param"], param) << answer.body;
    EXPECT_THAT(error["message"].get<std::string>(), HasSubstr(why));
  };
  refused(
      R"("response_format":{"type":"json_schema","json_schema":{"name":"n","schema":{"type":"array","uniqueItems":true}}})",
      "response_format.json_schema.schema", "uniqueItems");
  refused(R"("guided_json":"{")", "guided_json", "not JSON");
  refused(R"("guided_regex":"[a")", "guided_regex", "cannot be enforced");
  refused(R"("structured_outputs":{"grammar":"start: nowhere"})", "structured_outputs.grammar", "nowhere");
  EXPECT_EQ(S().Metric("headrace_generated_tokens_total"), before);
}

// ---- keys, TLS -----------------------------------------------------------------------------------------------------

// The hash is that of "sk-one".
constexpr char kKeyFile[] =
    "[[keys]]\nname = \"one\"\nsha256 = \"456f1612bd25c6c8455039437bf441f43aa3b7d1c0b0047c712d5036dfebef0d\"\n";

TEST(ServerKeys, AWrongOrMissingKeyIs401BeforeTheBody) {
  Served served(kPlainScript, [](ServeOptions& o) {
    const std::string file = std::filesystem::path(o.model.substr(7)).parent_path() / "keys.toml";
    std::ofstream(file) << kKeyFile;
    o.api_key_file = file;
  });
  EXPECT_TRUE(served.Await([&] { return served.Get("/ready").status == 200; }));
  for (const char* header : {"", "Authorization: Bearer wrong\r\n", "Authorization: Basic b25l\r\n"}) {
    for (const char* path : {"/v1/chat/completions", "/v1/completions", "/tokenize"}) {
      const auto answer = served.Post(path, ChatText("x"), header);
      ExpectError(answer, 401, "invalid_api_key");
      EXPECT_THAT(answer.head, HasSubstr("WWW-Authenticate: Bearer"));
    }
    EXPECT_EQ(served.Get("/v1/models", header).status, 401);
  }
  EXPECT_EQ(served.Get("/health").status, 200);
  EXPECT_EQ(served.Post("/v1/chat/completions", ChatText("x"), "Authorization: Bearer sk-one\r\n").status, 200);
}

TEST(ServerKeys, ABrokenKeyFileStopsTheStart) {
  Served served(kPlainScript, [](ServeOptions& o) { o.api_key_file = "/nonexistent/keys.toml"; });
  EXPECT_EQ(served.port, 0);
  EXPECT_EQ(served.Join(), kExitNotFound);
}

TEST(ServerTls, ServesOverTls) {
  Served served(kPlainScript, [](ServeOptions& o) {
    const CertificateFiles files = MakeSelfSignedCertificate(std::filesystem::path(o.model.substr(7)).parent_path());
    o.tls_cert = files.cert_file;
    o.tls_key = files.key_file;
  });
  EXPECT_EQ(NegotiatedTlsVersion(served.port, TLS1_3_VERSION), TLS1_3_VERSION);
  EXPECT_EQ(NegotiatedTlsVersion(served.port, TLS1_1_VERSION), 0);
}

// ---- bodies (O-49) -------------------------------------------------------------------------------------------------

std::string BodyOfSize(size_t size) {
  const std::string around = ChatText("", R"("max_tokens":4)");
  std::string body = around;
  body.insert(body.find("content\":\"") + 10, std::string(size - around.size(), ' '));
  return body;
}

TEST_F(ServerTest, BodiesUpToTheLimitAndAbove) {
  const size_t limit = ApiLimits{}.body_bytes_max;
  // Blanks are tokens of the script's vocabulary: what fits the body does not fit the context, and says so.
  for (const size_t size : {size_t{9'000}, size_t{5} << 20, limit - 1, limit})
    ExpectError(S().Post("/v1/chat/completions", BodyOfSize(size)), 400, "context_length_exceeded", "messages");
  RawClient client(S().port);
  client.Send(
      "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: " +
      std::to_string(limit + 1) + "\r\n\r\n");
  ExpectError(client.ReadAnswer(), 413, "request_too_large", "", std::to_string(limit));
  RawClient huge(S().port);
  huge.Send("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10000000000\r\n\r\n");
  ExpectError(huge.ReadAnswer(), 413, "request_too_large");
}

TEST_F(ServerTest, ChunkedAndExpectedBodies) {
  const std::string body = ChatText("x");
  char size[16];
  std::snprintf(size, sizeof(size), "%zx", body.size());
  RawClient client(S().port);
  EXPECT_EQ(client
                .Ask("POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
                     "application/json\r\nTransfer-Encoding: chunked\r\n\r\n" +
                     std::string(size) + "\r\n" + body + "\r\n0\r\n\r\n")
                .status,
            200);
  client.Send(
      "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nExpect: "
      "100-continue\r\nContent-Length: " +
      std::to_string(body.size()) + "\r\n\r\n");
  EXPECT_THAT(client.ReadUntil("\r\n\r\n"), HasSubstr("100 Continue"));
  EXPECT_EQ(client.Ask(body).status, 200);
}

}  // namespace
}  // namespace headrace
