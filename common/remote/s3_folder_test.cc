#include "common/remote/s3_folder.h"

#include <gmock/gmock.h>
#include <stdlib.h>

#include <atomic>

#include "common/files.h"
#include "common/remote/testing/fake_s3.h"
#include "common/sha256.h"

namespace imgd {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

constexpr size_t kMib = size_t{1} << 20;

class S3FolderTest : public testing::Test {
 protected:
  S3Folder Open(const std::string& where = "s3://b/a=b/c d+e") {
    return S3Folder::Open(where, s3_.Environment(), HastyHttp()).value();
  }

  /// Bytes that no two places of it share for long.
  static std::string Bytes(size_t size) {
    std::string out;
    for (uint64_t i = 0; out.size() < size; ++i) out += fmt::format("{:07x}\n", i);
    out.resize(size);
    return out;
  }

  std::string PutBytes(const S3Folder& folder, const std::string& key, const std::string& content) {
    std::string path = (fs::temp_directory_path() / "s3-folder-XXXXXX").string();
    const UniqueFd fd(::mkstemp(path.data()));
    EXPECT_TRUE(WriteAll(fd.get(), content, path));
    const auto put = folder.PutFile(key, path);
    fs::remove(path);
    return put ? "" : put.error().ToString();
  }

  /// The first so many requests that `which` names get this answer.
  void Answer(int times, TestReply reply, std::function<bool(const TestRequest&)> which) {
    left_ = times;
    s3_.intercept = [this, reply, which](const TestRequest& request) -> std::optional<TestReply> {
      if (!which(request) || left_-- <= 0) return std::nullopt;
      return reply;
    };
  }

  FakeS3 s3_;
  std::atomic<int> left_ = 0;
};

bool IsPut(const TestRequest& request) { return request.method == "PUT"; }

TEST_F(S3FolderTest, PutsGetsListsAndDeletesKeysOfEveryKind) {
  const S3Folder folder = Open();
  for (const char* key : {"g0/x=1.json", "g0/a+b c.bin", "g0/ü&<>%2B", "top"})
    ASSERT_TRUE(folder.Put(key, key)) << key;
  s3_.Set("a=b/c d+e2/other", "");
  std::vector<std::string> keys;
  const auto listed = folder.List("g0");
  ASSERT_TRUE(listed) << listed.error().ToString();
  for (const auto& one : *listed) {
    keys.push_back(one.key);
    EXPECT_EQ(one.bytes, one.key.size());
    EXPECT_EQ(one.changed_us, 1'769'860'800'000'000);
    EXPECT_EQ(folder.Get(one.key).value(), one.key);
  }
  EXPECT_THAT(keys, ElementsAre("g0/a+b c.bin", "g0/x=1.json", "g0/ü&<>%2B"));
  EXPECT_EQ(folder.List()->size(), 4U);
  EXPECT_TRUE(folder.Delete("g0/a+b c.bin"));
  EXPECT_TRUE(folder.Delete("g0/a+b c.bin")) << "it is gone all the same";
  EXPECT_EQ(folder.Get("g0/a+b c.bin").value(), std::nullopt);
}

TEST_F(S3FolderTest, AListingIsReadToItsEnd) {
  for (int i = 0; i < 2'345; ++i) s3_.Set(fmt::format("p/k {:05}", i), "x");
  const auto listed = Open("s3://b/p/").List();
  ASSERT_TRUE(listed) << listed.error().ToString();
  ASSERT_EQ(listed->size(), 2'345U);
  EXPECT_EQ(listed->back().key, "k 02344");
  EXPECT_EQ(s3_.log().size(), 3U);
}

TEST_F(S3FolderTest, LargeFilesGoUpInParts) {
  const std::string content = Bytes(2 * S3Folder::kPartBytes + 5);
  EXPECT_EQ(PutBytes(Open(), "large", content), "");
  EXPECT_TRUE(s3_.Objects().at("a=b/c d+e/large") == content);
  EXPECT_EQ(s3_.log().size(), 5U) << "begin, three parts, complete";
  EXPECT_EQ(s3_.UploadsUnderWay(), 0U);
  EXPECT_TRUE(Open().Get("large").value() == content);
}

TEST_F(S3FolderTest, WhatMayPassIsTriedAgain) {
  const S3Folder folder = Open();
  Answer(3, {.status = 503, .body = "<Error><Code>SlowDown</Code></Error>"}, IsPut);
  EXPECT_TRUE(folder.Put("x", "content"));
  Answer(1, {.status = 400, .body = "<Error><Code>BadDigest</Code></Error>"}, IsPut);
  EXPECT_TRUE(folder.Put("y", "content")) << "changed on its way";
  const std::string content = Bytes(S3Folder::kPartBytes + kMib);
  Answer(2, {.status = 500},
         [](const TestRequest& r) { return r.target.find("partNumber=2") != std::string::npos; });
  EXPECT_EQ(PutBytes(folder, "parts", content), "");
  EXPECT_TRUE(s3_.Objects().at("a=b/c d+e/parts") == content);
}

TEST_F(S3FolderTest, AnErrorInAnAnswerOf200IsOne) {
  Answer(1, {.status = 200, .body = "<Error><Code>InternalError</Code></Error>"}, [](const TestRequest& r) {
    return r.method == "POST" && r.target.find("uploadId") != std::string::npos;
  });
  EXPECT_EQ(PutBytes(Open(), "parts", Bytes(S3Folder::kPartBytes + kMib)), "");
  EXPECT_EQ(s3_.Objects().size(), 1U);
}

TEST_F(S3FolderTest, CompletingTwiceIsFineWhereTheFirstAnswerWasLost) {
  // The server has completed it, and what it says breaks off.
  std::atomic<bool> lost = false;
  s3_.intercept = [&](const TestRequest& request) -> std::optional<TestReply> {
    if (request.method != "POST" || request.target.find("uploadId") == std::string::npos) return std::nullopt;
    if (!lost.exchange(true)) {
      s3_.Set("a=b/c d+e/parts", "done");
      return TestReply{.body = "long", .cut_after = 1};
    }
    return TestReply{.status = 404, .body = "<Code>NoSuchUpload</Code>"};
  };
  EXPECT_EQ(PutBytes(Open(), "parts", Bytes(S3Folder::kPartBytes + kMib)), "");
}

TEST_F(S3FolderTest, AFailedUploadInPartsIsEndedAndSaysWhatFailed) {
  Answer(1'000'000, {.status = 403, .body = "<Error><Code>AccessDenied</Code></Error>"},
         [](const TestRequest& r) { return r.target.find("partNumber=2") != std::string::npos; });
  EXPECT_THAT(
      PutBytes(Open("s3://b/p"), "parts", Bytes(S3Folder::kPartBytes + kMib)),
      AllOf(HasSubstr("s3://b/p/parts: the server answers 403 AccessDenied"), HasSubstr("s3:PutObject")));
  EXPECT_EQ(s3_.UploadsUnderWay(), 0U);
  EXPECT_THAT(s3_.Objects(), IsEmpty());
}

TEST_F(S3FolderTest, AServerThatStaysAwayIsGivenUp) {
  Answer(1'000'000, {.status = 503, .body = "<Error><Code>SlowDown</Code></Error>"}, IsPut);
  const auto put = Open("s3://b/p").Put("x", "content");
  ASSERT_FALSE(put);
  EXPECT_THAT(put.error().message,
              AllOf(StartsWith("cannot write s3://b/p/x, after "), HasSubstr("503 SlowDown")));
  EXPECT_EQ(put.error().code, ErrorCode::kUnavailable);
}

TEST_F(S3FolderTest, WhatIsRefusedIsNotTriedAgainAndSaysWhatHelps) {
  const auto no_bucket = Open("s3://other/p").Put("x", "");
  ASSERT_FALSE(no_bucket);
  EXPECT_EQ(no_bucket.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(no_bucket.error().ToString(),
              AllOf(HasSubstr("404 NoSuchBucket"), HasSubstr("there is no such bucket")));
  EXPECT_FALSE(Open("s3://other/p").Get("x")) << "no bucket is more than no object";
  s3_.secret_key = "another";
  const auto unsigned_ = Open().Put("x", "");
  ASSERT_FALSE(unsigned_);
  EXPECT_EQ(unsigned_.error().code, ErrorCode::kPermissionDenied);
  EXPECT_THAT(unsigned_.error().ToString(),
              AllOf(HasSubstr("403 SignatureDoesNotMatch"), HasSubstr("AWS_SECRET_ACCESS_KEY")));
  Answer(1, {.status = 301, .headers = {{"x-amz-bucket-region", "eu-7"}}}, IsPut);
  EXPECT_THAT(Open().Put("x", "").error().hint, HasSubstr("eu-7: set AWS_REGION"));
  EXPECT_EQ(s3_.log().size(), 4U);
}

TEST_F(S3FolderTest, OnlyOneCanBeTheFirstToPutAnObject) {
  const S3Folder folder = Open();
  EXPECT_TRUE(folder.PutNew("manifest", "one").value());
  EXPECT_FALSE(folder.PutNew("manifest", "two").value());
  EXPECT_TRUE(folder.PutNew("manifest", "one").value()) << "a try of ours whose answer was lost";
  EXPECT_EQ(folder.Get("manifest").value(), "one");
  Answer(1, {.status = 409, .body = "<Error><Code>ConditionalRequestConflict</Code></Error>"}, IsPut);
  EXPECT_TRUE(folder.PutNew("other", "x").value()) << "two at once: one more try";
  Answer(1, {.status = 501, .body = "<Error><Code>NotImplemented</Code></Error>"}, IsPut);
  EXPECT_EQ(folder.PutNew("third", "x").error().code, ErrorCode::kFailedPrecondition);
}

TEST_F(S3FolderTest, AReadThatBreaksOffGoesOnWhereItWas) {
  const std::string content = Bytes(3 * kMib);
  const S3Folder folder = Open("s3://b/p");
  s3_.Set("p/x", content);
  Answer(1, {.headers = {{"ETag", "\"old\""}}, .body = content, .cut_after = kMib},
         [](const TestRequest& r) { return r.header("range").empty(); });
  const auto changed = folder.Get("x");
  ASSERT_FALSE(changed) << "the rest would be of another one";
  EXPECT_EQ(changed.error().code, ErrorCode::kDataLoss);

  std::atomic<int> cuts = 2;
  s3_.intercept = [&](const TestRequest& request) -> std::optional<TestReply> {
    if (cuts-- <= 0) return std::nullopt;
    TestRequest closed = request;
    if (closed.header("range").ends_with('-')) closed.headers["range"] += std::to_string(content.size() - 1);
    closed.headers.erase("if-match");
    TestReply reply = ServeContent(closed, content, "\"" + Sha256Of(content).substr(0, 32) + "\"");
    reply.cut_after = kMib;
    return reply;
  };
  const auto read = folder.Get("x");
  ASSERT_TRUE(read) << read.error().ToString();
  EXPECT_TRUE(*read == content);
  EXPECT_THAT(s3_.log(), Contains(HasSubstr("bytes=")).Times(testing::Ge(2)));
  EXPECT_FALSE(folder.Get("x", kMib)) << "more than was asked for";
}

TEST_F(S3FolderTest, UploadsThatNobodyFinishesAreEnded) {
  // Parts that a killed process has left.
  const S3Folder folder = Open("s3://b/p");
  Answer(1'000'000, {.status = 403}, [](const TestRequest& r) {
    return r.target.find("partNumber") != std::string::npos || r.method == "DELETE";
  });
  const std::string content = Bytes(S3Folder::kPartBytes + kMib);
  EXPECT_NE(PutBytes(folder, "g1/x y", content), "");
  EXPECT_NE(PutBytes(folder, "g2/x y", content), "");
  s3_.intercept = {};
  EXPECT_EQ(s3_.UploadsUnderWay(), 2U);
  EXPECT_TRUE(folder.AbortUploads([](const std::string& key) { return key == "g1/x y"; }));
  EXPECT_EQ(s3_.UploadsUnderWay(), 1U);
}

}  // namespace
}  // namespace imgd
