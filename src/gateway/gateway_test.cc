// Goal: who may call is decided from the key file alone, and its errors name entry and field but never a value; a
// request goes through the pipeline's stages to exactly one end whatever happens on the way: refused, unknown model,
// not ready, draining, too many, failed, cancelled at any stage; and it is settled exactly once. A fake backend stands
// behind it.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/sha.h>
#include <spdlog/sinks/ostream_sink.h>
#include <unistd.h>

#include <deque>
#include <filesystem>
#include <sstream>

#include "base/file.h"
#include "base/log.h"
#include "executor/scripted/script.h"
#include "gateway/identity.h"
#include "gateway/pipeline.h"
#include "gateway/preparer.h"
#include "gateway/text_pool.h"

namespace headrace {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string Sha256Hex(const std::string& text) {
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest);
  std::string out;
  for (const unsigned char byte : digest) out += fmt::format("{:02x}", byte);
  return out;
}

std::string Entry(const std::string& fields) { return "[[keys]]\n" + fields + "\n"; }

Error ParseError(const std::string& toml) {
  const auto store = KeyStore::Parse(toml, "keys.toml");
  EXPECT_FALSE(store.has_value()) << toml;
  return store ? Error{} : store.error();
}

// ---- identity ------------------------------------------------------------------------------------------------------

TEST(Identity, WithoutAKeyFileEverybodyIsTheDefaultTenant) {
  const KeyStore store;
  EXPECT_TRUE(store.open());
  for (const char* header : {"", "Bearer sk-dummy", "Basic eA==", "nonsense"}) {
    const auto identity = store.Authenticate(header);
    ASSERT_TRUE(identity) << header;
    EXPECT_EQ(identity->tenant, "default");
    EXPECT_EQ(identity->key_name, "");
  }
}

TEST(Identity, AKeyOpensItsOwnEntryOnly) {
  const auto store =
      KeyStore::Parse(Entry("name = \"alice\"\nsha256 = \"" + Sha256Hex("sk-alice") +
                            "\"\ntenant = \"team-a\"\nhighest_band = \"high\"\nweight = 2\nwaiting_max "
                            "= 7\nstandard_band = \"high\"\ncache_group = \"org\"\ncache_retention = true") +
                          Entry("sha256 = \"" + Sha256Hex("sk-bob") + "\""),
                      "keys.toml");
  ASSERT_TRUE(store) << store.error().message;
  EXPECT_FALSE(store->open());
  const auto alice = store->Authenticate("Bearer sk-alice");
  ASSERT_TRUE(alice);
  EXPECT_EQ(alice->key_name, "alice");
  EXPECT_EQ(alice->tenant, "team-a");
  EXPECT_EQ(alice->cache_group, "org");
  EXPECT_EQ(alice->highest_band, Band::kHigh);
  EXPECT_EQ(alice->standard_band, Band::kHigh);
  EXPECT_EQ(alice->weight, 2.0);
  EXPECT_EQ(alice->waiting_max, 7);
  EXPECT_TRUE(alice->cache_retention);
  const auto bob = store->Authenticate("bearer sk-bob");  // the scheme's case does not matter
  ASSERT_TRUE(bob);
  EXPECT_EQ(bob->key_name, "keys[1]");
  EXPECT_EQ(bob->tenant, "default");
  EXPECT_EQ(bob->cache_group, "");
  EXPECT_EQ(bob->highest_band, Band::kNormal);
  EXPECT_EQ(bob->standard_band, Band::kNormal);
  EXPECT_EQ(bob->waiting_max, 0);
  EXPECT_FALSE(bob->cache_retention) << "a key keeps others' blocks out only where the operator says so";
}

// One answer for all that is wrong, so that it tells nothing about what is right.
TEST(Identity, EveryWrongKeyIsUnauthenticatedAndNeverQuoted) {
  const auto store = KeyStore::Parse(Entry("sha256 = \"" + Sha256Hex("sk-alice") + "\""), "keys.toml");
  ASSERT_TRUE(store);
  std::string said;
  for (const std::string& key : {std::string("sk-alicf"), std::string("sk-alic"), std::string("sk-alice "),
                                 std::string("SK-ALICE"), std::string("x"), Sha256Hex("sk-alice")}) {
    const auto identity = store->Authenticate("Bearer " + key);
    ASSERT_FALSE(identity) << key;
    EXPECT_EQ(identity.error().code, ErrorCode::kUnauthenticated);
    EXPECT_THAT(identity.error().message, Not(HasSubstr(key + ".")));
    if (said.empty()) said = identity.error().message;
    EXPECT_EQ(identity.error().message, said);
  }
  for (const char* header : {"", "Bearer", "Bearer ", "Basic sk-alice", "sk-alice"}) {
    const auto identity = store->Authenticate(header);
    ASSERT_FALSE(identity) << header;
    EXPECT_EQ(identity.error().code, ErrorCode::kUnauthenticated);
  }
}

TEST(Identity, ErrorsOfTheKeyFileNameEntryAndFieldNeverTheValue) {
  const std::string hash = "sha256 = \"" + Sha256Hex("k") + "\"\n";
  const std::string secret = "sk-secret-value";
  struct Case {
    std::string toml, field, message;
  };
  const Case cases[] = {
      {"", "keys", "has no [[keys]]. For each key write\n  [[keys]]\n  sha256 = "},
      {"keys = []", "keys", "has no [[keys]]. For each key write\n  [[keys]]\n  sha256 = "},
      {"keys = 3", "keys", "has no [[keys]]. For each key write\n  [[keys]]\n  sha256 = "},
      {"keys = [1]", "keys[0]", "is not a table"},
      {"[[keys]\nname = 1", "", "line 1 is not TOML"},
      {"sk-secret-value", "", "For each key write\n  [[keys]]"},
      {Entry(""), "keys[0]", "64 hex digits"},
      {Entry("sha256 = \"" + secret + "\""), "keys[0]", "64 hex digits"},
      {Entry("sha256 = 5"), "keys[0]", "sha256"},
      {Entry(hash) + Entry("sha256 = \"zz\""), "keys[1]", "64 hex digits"},
      {Entry(hash) + Entry(hash), "keys[1]", "repeats"},
      {Entry(hash + "key = \"" + secret + "\""), "keys[0]", "unknown field 'key'"},
      {Entry(hash + "name = 5"), "keys[0]", "has a name"},
      {Entry(hash + "tenant = \"\""), "keys[0]", "has a tenant"},
      {Entry(hash + "cache_group = 3"), "keys[0]", "has a cache_group"},
      {Entry(hash + "tenant = \"" + std::string(300, 'x') + "\""), "keys[0]", "1 to 256 bytes"},
      {Entry(hash + "highest_band = \"" + secret + "\""), "keys[0]", "critical, high, normal or batch"},
      {Entry(hash + "standard_band = \"best\""), "keys[0]", "standard_band"},
      {Entry(hash + "highest_band = \"normal\"\nstandard_band = \"high\""), "keys[0]", "more urgent than its highest"},
      {Entry(hash + "cache_retention = 1"), "keys[0]", "cache_retention"},
      {Entry(hash + "waiting_max = 0"), "keys[0]", "waiting_max"},
      {Entry(hash + "waiting_max = 1.5"), "keys[0]", "waiting_max"},
      {Entry(hash + "weight = 0"), "keys[0]", "weight"},
      {Entry(hash + "weight = -1.5"), "keys[0]", "weight"},
      {Entry(hash + "weight = nan"), "keys[0]", "weight"},
      {Entry(hash + "weight = inf"), "keys[0]", "weight"},
      {Entry(hash + "weight = \"2\""), "keys[0]", "weight"},
  };
  for (const Case& c : cases) {
    const Error error = ParseError(c.toml);
    EXPECT_EQ(error.field, c.field) << c.toml;
    EXPECT_THAT(error.message, HasSubstr(c.message)) << c.toml;
    EXPECT_THAT(error.message, HasSubstr("keys.toml"));
    EXPECT_THAT(error.message, Not(HasSubstr(secret)));
  }
}

TEST(Identity, TooManyKeysAndAMissingFileAreErrors) {
  std::string toml = "keys = [";
  for (size_t i = 0; i <= kKeysMax; ++i) toml += "{},";
  const Error many = ParseError(toml + "]");
  EXPECT_EQ(many.code, ErrorCode::kTooLarge);
  EXPECT_EQ(many.field, "keys");
  EXPECT_EQ(many.message, "keys.toml has more than 10000 keys");
  EXPECT_FALSE(KeyStore::Load("/nonexistent/keys.toml").has_value());
  const std::string file = testing::TempDir() + "headrace_gateway_" + std::to_string(getpid()) + ".toml";
  ASSERT_TRUE(WriteFileAtomically(file, std::string(kKeyFileBytesMax + 1, '\n')));
  const auto large = KeyStore::Load(file);
  std::filesystem::remove(file);
  ASSERT_FALSE(large);
  EXPECT_EQ(large.error().code, ErrorCode::kTooLarge);
  EXPECT_THAT(large.error().message, HasSubstr(".toml has 4194305 bytes; at most 4194304 are read"));
}

// ---- text pool -----------------------------------------------------------------------------------------------------

TEST(TextPool, RefusesAboveItsLimitAndAfterStopAndDropsWhatWaits) {
  TextPool pool(1, 2);
  Mutex mutex;
  CondVar changed;
  bool running = false, release = false;
  ASSERT_TRUE(pool.Post([&] {
    MutexLock lock(mutex);
    running = true;
    changed.NotifyAll();
    while (!release) changed.Wait(mutex);
  }));
  {
    MutexLock lock(mutex);
    while (!running) changed.Wait(mutex);
  }
  std::atomic<int> ran = 0;
  auto token = std::make_shared<int>(0);
  EXPECT_TRUE(pool.Post([&ran, token] { ++ran; }));
  EXPECT_TRUE(pool.Post([&ran, token] { ++ran; }));
  EXPECT_FALSE(pool.Post([&ran, token] { ++ran; })) << "the queue holds two";
  std::thread stopper([&] { pool.Stop(); });
  while (pool.Post([token] {})) {  // until Stop has begun, Post may see the queue full: either is false
  }
  {
    MutexLock lock(mutex);
    release = true;
    changed.NotifyAll();
  }
  stopper.join();
  EXPECT_FALSE(pool.Post([] {}));
  EXPECT_EQ(token.use_count(), 1) << "dropped work still holds what it borrowed";
}

// ---- pipeline ------------------------------------------------------------------------------------------------------

// The loop: the test's thread.
class TestLoop {
 public:
  Pipeline::Poster Poster() {
    return [this](std::move_only_function<void()> task) {
      MutexLock lock(mutex_);
      tasks_.push_back(std::move(task));
      posted_.NotifyOne();
    };
  }
  void RunUntil(const std::function<bool()>& done) {
    while (!done()) RunOne();
  }
  void RunOne() {
    std::move_only_function<void()> task;
    {
      MutexLock lock(mutex_);
      while (tasks_.empty()) posted_.Wait(mutex_);
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    task();
  }

 private:
  Mutex mutex_;
  CondVar posted_;
  std::deque<std::move_only_function<void()>> tasks_ GUARDED_BY(mutex_);
};

class FakeBackend final : public Backend {
 public:
  class Call final : public BackendCall {
   public:
    explicit Call(int* cancelled) : cancelled_(cancelled) {}
    ~Call() override { ++*cancelled_; }

   private:
    int* cancelled_;
  };
  Result<std::unique_ptr<BackendCall>> Start(const PreparedRequest& request, BackendSink& sink) override {
    if (refusal) return Fail(*refusal);
    started.push_back(&request);
    sinks.push_back(&sink);
    return std::make_unique<Call>(&dropped);
  }
  std::optional<Error> refusal;
  std::vector<const PreparedRequest*> started;
  std::vector<BackendSink*> sinks;
  int dropped = 0;
};

struct RecordingSink final : PipelineSink {
  void OnAdmitted(const PreparedRequest& request) override {
    ++admitted;
    prompt_tokens = request.prompt_tokens();
  }
  void OnDelta(const ChoiceDelta& delta) override { text += delta.text; }
  void OnChoiceEnd(int index, FinishReason reason) override { ends.emplace_back(index, reason); }
  void OnEnd(const Usage& end_usage) override {
    ++ended;
    usage = end_usage;
  }
  void OnError(const Error& e) override {
    ++failed;
    error = e;
  }
  bool over() const { return ended + failed > 0; }

  int admitted = 0, ended = 0, failed = 0;
  int64_t prompt_tokens = 0;
  std::string text;
  std::vector<std::pair<int, FinishReason>> ends;
  Usage usage;
  Error error;
};

class PipelineTest : public testing::Test {
 protected:
  PipelineTest() {
    spdlog::set_level(spdlog::level::off);
    PipelineOptions options;
    options.model_names = {"house", "alias"};
    options.requests_max = 2;
    options.queue_timeout = 5 * kNsPerSecond;
    options.request_timeout = 60 * kNsPerSecond;
    clock_.Set(kNsPerSecond);
    pipeline_ = std::make_unique<Pipeline>(options, clock_, pool_, loop_.Poster(), metrics_);
  }
  ~PipelineTest() override { pool_.Stop(); }

  void Open() { pipeline_->Open(preparer_, backend_); }
  std::unique_ptr<PipelineCall> Start(RecordingSink& sink, const std::string& fields = R"("prompt":"hi")",
                                      const std::string& model = "house", Identity identity = {}) {
    return pipeline_->Start(GenerationRequest::Kind::kCompletion, R"({"model":")" + model + R"(",)" + fields + "}",
                            std::move(identity), {.id = "id-1"}, sink);
  }
  // The error that ends a request.
  Error ErrorOf(const std::string& fields, const std::string& model = "house") {
    RecordingSink sink;
    const auto call = Start(sink, fields, model);
    EXPECT_FALSE(sink.over()) << "an event from inside Start";
    loop_.RunUntil([&] { return sink.over(); });
    EXPECT_EQ(sink.failed, 1);
    EXPECT_EQ(sink.admitted, 0);
    return sink.error;
  }
  double Counter(const std::string& line) const {
    const std::string text = metrics_.Text();
    const size_t at = text.find("\n" + line + " ");
    return at == std::string::npos ? 0 : std::stod(text.substr(at + 1 + line.size()));
  }

  VirtualClock clock_;
  MetricsRegistry metrics_;
  TestLoop loop_;
  TextPool pool_{1};
  const std::unique_ptr<Tokenizer> tokenizer_ = *Tokenizer::FromVocabulary(ScriptVocabulary(Script{}));
  const Preparer preparer_{*tokenizer_, nullptr, {}};
  FakeBackend backend_;
  std::unique_ptr<Pipeline> pipeline_;
};

TEST_F(PipelineTest, ARequestGoesThroughToItsEnd) {
  Open();
  EXPECT_TRUE(pipeline_->ready());
  RecordingSink sink;
  auto call = Start(sink, R"("prompt":"hello","seed":7,"deadline_ms":1000)");
  EXPECT_EQ(pipeline_->under_way(), 1);
  loop_.RunUntil([&] { return sink.admitted == 1; });
  const PreparedRequest& request = *backend_.started.at(0);
  EXPECT_EQ(request.prompts.at(0), (std::vector<int32_t>{'h', 'e', 'l', 'l', 'o'}));
  EXPECT_EQ(request.seed, 7u);
  EXPECT_EQ(request.request_id, "id-1");
  EXPECT_EQ(request.start_before, 6 * kNsPerSecond);
  EXPECT_EQ(request.finish_before, 2 * kNsPerSecond) << "the client's deadline is nearer than the server's";
  EXPECT_EQ(sink.prompt_tokens, 5);
  backend_.sinks[0]->OnDelta({.index = 0, .text = "wor", .tokens = 3});
  backend_.sinks[0]->OnDelta({.index = 0, .text = "ld", .tokens = 2});
  backend_.sinks[0]->OnChoiceEnd(0, FinishReason::kStop);
  backend_.sinks[0]->OnEnd(2);
  EXPECT_EQ(sink.text, "world");
  EXPECT_EQ(sink.usage.prompt_tokens, 5);
  EXPECT_EQ(sink.usage.completion_tokens, 5);
  EXPECT_EQ(sink.usage.cached_tokens, 2);
  call->Settle({.status = 200});
  call.reset();
  EXPECT_EQ(pipeline_->under_way(), 0);
  EXPECT_EQ(Counter(R"(headrace_requests_total{route="completions",status="200"})"), 1);
}

// L4: with an echoed prompt too, whose log-probabilities do not count.
TEST_F(PipelineTest, L4BestOfReturnsTheLikeliestCandidatesOfEachPrompt) {
  Open();
  RecordingSink sink;
  auto call = Start(sink, R"("prompt":["a","b"],"n":2,"best_of":3)");
  loop_.RunUntil([&] { return sink.admitted == 1; });
  EXPECT_EQ(backend_.started.at(0)->candidates(), 6);
  EXPECT_EQ(backend_.started.at(0)->choices(), 4);
  EXPECT_TRUE(backend_.started.at(0)->wants_logprobs());
  BackendSink& backend_sink = *backend_.sinks.at(0);
  const auto token = [](float logprob) { return TokenLogprob{"t", "t", logprob, {}}; };
  const float means[] = {-3, -1, -2, -1, -5, -1};
  for (int i = 0; i < 6; ++i) {
    const std::string name = "<" + std::to_string(i);
    backend_sink.OnDelta({.index = i, .text = name, .logprobs = {token(-50), token(means[i])}, .tokens = 1});
    backend_sink.OnDelta({.index = i, .text = ">", .logprobs = {token(means[i])}, .tokens = 1});
    backend_sink.OnChoiceEnd(i, i == 2 ? FinishReason::kLength : FinishReason::kStop);
  }
  EXPECT_EQ(sink.text, "") << "nothing before all are whole";
  backend_sink.OnEnd(0);
  EXPECT_EQ(sink.text, "<1><2><3><5>");
  EXPECT_EQ(
      sink.ends,
      (std::vector<std::pair<int, FinishReason>>{
          {0, FinishReason::kStop}, {1, FinishReason::kLength}, {2, FinishReason::kStop}, {3, FinishReason::kStop}}));
  EXPECT_EQ(sink.usage.completion_tokens, 12) << "of all candidates: they were computed";
}

TEST_F(PipelineTest, NothingFollowsTheLastEvent) {
  Open();
  RecordingSink sink;
  const auto call = Start(sink);
  loop_.RunUntil([&] { return sink.admitted == 1; });
  BackendSink& backend_sink = *backend_.sinks.at(0);
  backend_sink.OnError({ErrorCode::kInternal, "broke", {}, 0});
  backend_sink.OnEnd(0);
  backend_sink.OnError({ErrorCode::kInternal, "again", {}, 0});
  backend_sink.OnDelta({.index = 0, .text = "late", .tokens = 1});
  backend_sink.OnChoiceEnd(0, FinishReason::kStop);
  EXPECT_EQ(sink.failed, 1);
  EXPECT_EQ(sink.ended, 0);
  EXPECT_EQ(sink.error.message, "broke");
  EXPECT_EQ(sink.text, "");
  EXPECT_TRUE(sink.ends.empty());
}

TEST_F(PipelineTest, ValidationErrorsNameTheField) {
  Open();
  EXPECT_EQ(ErrorOf(R"("prompt":"x","temperature":9)").field, "temperature");
  EXPECT_EQ(ErrorOf(R"("prompt":[999999])").code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(ErrorOf(R"("prompt":"x","suffix":"y")").code, ErrorCode::kUnsupported);
  EXPECT_EQ(ErrorOf(R"("prompt":"x","logit_bias":{"258":1})").code, ErrorCode::kInvalidArgument)
      << "the vocabulary has 258 tokens";
  RecordingSink sink;
  const auto call =
      pipeline_->Start(GenerationRequest::Kind::kChat,
                       R"({"model":"house","messages":[{"role":"user","content":"x"}]})", {}, {.id = "id"}, sink);
  loop_.RunUntil([&] { return sink.over(); });
  EXPECT_EQ(sink.error.code, ErrorCode::kUnsupported) << "no chat template";
  EXPECT_EQ(backend_.started.size(), 0u);
}

TEST_F(PipelineTest, AnUnknownModelIsNamedWithTheNearestOne) {
  Open();
  const Error error = ErrorOf(R"("prompt":"x")", "hause");
  EXPECT_EQ(error.code, ErrorCode::kNotFound);
  EXPECT_EQ(error.field, "model");
  EXPECT_THAT(error.message, HasSubstr("Did you mean 'house'"));
  RecordingSink sink;
  const auto call = Start(sink, R"("prompt":"x")", "alias");
  loop_.RunUntil([&] { return sink.admitted == 1; });
  EXPECT_EQ(backend_.started.at(0)->api.model, "alias");
}

TEST_F(PipelineTest, NotReadyAndDrainingAreRefusedWithATimeToRetry) {
  EXPECT_FALSE(pipeline_->ready());
  const Error loading = ErrorOf(R"("prompt":"x")");
  EXPECT_EQ(loading.code, ErrorCode::kUnavailable);
  EXPECT_GT(loading.retry_after_ms, 0);
  Open();
  RecordingSink running;
  const auto call = Start(running);
  loop_.RunUntil([&] { return running.admitted == 1; });
  pipeline_->Close();
  EXPECT_FALSE(pipeline_->ready());
  const Error draining = ErrorOf(R"("prompt":"x")");
  EXPECT_EQ(draining.code, ErrorCode::kUnavailable);
  EXPECT_GT(draining.retry_after_ms, 0);
  backend_.sinks.at(0)->OnEnd(0);
  EXPECT_EQ(running.ended, 1) << "what ran before goes on to its end";
}

TEST_F(PipelineTest, TooManyUnderWayAreRefusedAndTheBackendsRefusalIsHandedOn) {
  Open();
  RecordingSink a, b;
  const auto first = Start(a), second = Start(b);
  const Error error = ErrorOf(R"("prompt":"x")");
  EXPECT_EQ(error.code, ErrorCode::kOverloaded);
  EXPECT_EQ(error.message, "Too many requests are under way. Retry later.");
  EXPECT_GT(error.retry_after_ms, 0);
  loop_.RunUntil([&] { return a.admitted + b.admitted == 2; });
}

TEST_F(PipelineTest, AFullTextPoolIsARefusalWithATimeToRetry) {
  TextPool full(0, 0);
  PipelineOptions options;
  options.model_names = {"house"};
  Pipeline pipeline(options, clock_, full, loop_.Poster(), metrics_);
  pipeline.Open(preparer_, backend_);
  RecordingSink sink;
  const auto call =
      pipeline.Start(GenerationRequest::Kind::kCompletion, R"({"model":"house","prompt":"x"})", {}, {.id = "id"}, sink);
  loop_.RunUntil([&] { return sink.over(); });
  EXPECT_EQ(sink.error.code, ErrorCode::kOverloaded);
  EXPECT_EQ(sink.error.message, "Too many requests are waiting to be read. Retry later.");
  EXPECT_GT(sink.error.retry_after_ms, 0);
}

TEST_F(PipelineTest, TheBackendsRefusalIsTheRequestsError) {
  Open();
  backend_.refusal = Error{ErrorCode::kContextLength, "too long", "prompt", 0};
  EXPECT_EQ(ErrorOf(R"("prompt":"x")").code, ErrorCode::kContextLength);
  EXPECT_EQ(pipeline_->under_way(), 0);
}

TEST_F(PipelineTest, ADroppedCallCancelsAtEveryStage) {
  Open();
  RecordingSink sink;
  auto call = Start(sink);
  call.reset();  // the text pool may or may not have begun
  EXPECT_EQ(pipeline_->under_way(), 0);
  loop_.RunOne();
  EXPECT_EQ(sink.admitted + sink.failed, 0);
  EXPECT_EQ(backend_.started.size(), 0u);

  call = Start(sink);
  loop_.RunUntil([&] { return sink.admitted == 1; });
  EXPECT_EQ(backend_.dropped, 0);
  call.reset();
  EXPECT_EQ(backend_.dropped, 1);
  EXPECT_EQ(Counter(R"(headrace_requests_total{route="completions",status="499"})"), 2);
}

TEST_F(PipelineTest, SettlesOnce) {
  Open();
  RecordingSink sink;
  auto call = Start(sink);
  loop_.RunUntil([&] { return sink.admitted == 1; });
  call->Settle({.status = 500, .error = "internal"});
  call->Settle({.status = 200});
  call.reset();
  EXPECT_EQ(Counter(R"(headrace_requests_total{route="completions",status="500"})"), 1);
  EXPECT_EQ(Counter(R"(headrace_requests_total{route="completions",status="200"})"), 0);
  EXPECT_EQ(Counter(R"(headrace_requests_total{route="completions",status="499"})"), 0);
}

TEST_F(PipelineTest, UnknownFieldsAreCountedAndTheRequestGoesOn) {
  Open();
  for (int i = 0; i < 3; ++i) {
    RecordingSink sink;
    const auto call = Start(sink, R"("prompt":"x","frobnicate":1,"x\n2030 forged line":2)");
    loop_.RunUntil([&] { return sink.admitted == 1; });
  }
  EXPECT_EQ(Counter("headrace_unknown_fields_total"), 6);
}

TEST_F(PipelineTest, UnknownFieldsAreNamedInTheLogUpToTheLimit) {
  Open();
  std::ostringstream text;
  const auto before = spdlog::default_logger();
  spdlog::set_default_logger(
      std::make_shared<spdlog::logger>("test", std::make_shared<spdlog::sinks::ostream_sink_mt>(text)));
  for (size_t request = 0; request <= kUnknownFieldsNamedMax / 32; ++request) {
    std::string fields = R"("prompt":"x")";
    for (size_t i = 0; i < 32; ++i) fields += fmt::format(R"(,"odd{}_{}":1)", request, i);
    RecordingSink sink;
    const auto call = Start(sink, fields);
    loop_.RunUntil([&] { return sink.admitted == 1; });
  }
  spdlog::set_default_logger(before);
  size_t named = 0;
  const std::string log = text.str();
  for (size_t at = 0; (at = log.find("does not know: odd", at)) != std::string::npos; ++at) ++named;
  EXPECT_EQ(named, kUnknownFieldsNamedMax);
  EXPECT_EQ(Counter("headrace_unknown_fields_total"), kUnknownFieldsNamedMax + 32);
}

TEST_F(PipelineTest, ABandAboveTheKeysOwnIsLowered) {
  Open();
  const auto band_of = [&](const std::string& fields, Band highest, Band standard = Band::kNormal) {
    RecordingSink sink;
    const auto call =
        Start(sink, R"("prompt":"x")" + fields, "house", {.highest_band = highest, .standard_band = standard});
    loop_.RunUntil([&] { return sink.admitted == 1; });
    return backend_.started.back()->urgency.band;
  };
  EXPECT_EQ(band_of("", Band::kHigh), Band::kNormal);
  EXPECT_EQ(band_of(R"(,"service_tier":"priority")", Band::kHigh), Band::kHigh);
  EXPECT_EQ(band_of(R"(,"service_tier":"priority")", Band::kNormal), Band::kNormal);
  EXPECT_EQ(band_of(R"(,"priority":-5)", Band::kBatch), Band::kBatch);
  EXPECT_EQ(band_of(R"(,"service_tier":"flex")", Band::kCritical), Band::kBatch);
  EXPECT_EQ(band_of("", Band::kCritical, Band::kCritical), Band::kCritical);
}

// A deadline of years does not wrap around into the past.
TEST_F(PipelineTest, AnAbsurdDeadlineIsTheServersOwn) {
  Open();
  RecordingSink sink;
  const auto call = Start(sink, R"("prompt":"x","deadline_ms":9223372036854)");
  loop_.RunUntil([&] { return sink.admitted == 1; });
  EXPECT_EQ(backend_.started.at(0)->finish_before, 61 * kNsPerSecond);
}

}  // namespace
}  // namespace headrace
