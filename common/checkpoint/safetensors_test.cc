#include "common/checkpoint/safetensors.h"

#include <gmock/gmock.h>

namespace imgd {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// A file of this header and data, with the right length in front.
std::string FileOf(const std::string& header, const std::string& data) {
  std::string out;
  for (size_t i = 0; i < 8; ++i) out.push_back(static_cast<char>((header.size() >> (8 * i)) & 0xff));
  return out + header + data;
}

std::string ErrorOf(const std::string& content) {
  const auto parsed = ParseSafetensors(content);
  return parsed ? "no error" : parsed.error().message;
}

TEST(Safetensors, WritesTheDocumentedLayout) {
  const std::string data = "\x01\x02\x03\x04\x05\x06\x07\x08";
  const auto head = SafetensorsHead({{"w", "F32", {2, 1}, data}}, {});
  ASSERT_TRUE(head.has_value());
  const std::string json = R"({"w":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]}})";
  EXPECT_EQ(head->size() % 8, 0U);
  EXPECT_EQ(head->substr(8, json.size()), json);
  EXPECT_EQ(static_cast<unsigned char>((*head)[0]), head->size() - 8);
}

TEST(Safetensors, ReadsBackWhatItWrote) {
  const std::string a(16, 'a');
  const std::string b(8, 'b');
  const auto head = SafetensorsHead(
      {{"a", "F32", {2, 2}, a}, {"count", "I64", {}, b}, {"none", "F32", {0, 3}, ""}}, {{"format", "pt"}});
  ASSERT_TRUE(head.has_value());
  const std::string file = *head + a + b;
  const auto content = ParseSafetensors(file);
  ASSERT_TRUE(content.has_value()) << content.error().ToString();
  EXPECT_EQ(content->metadata.at("format"), "pt");
  ASSERT_NE(content->Find("a"), nullptr);
  EXPECT_EQ(content->Find("a")->bytes, a);
  EXPECT_THAT(content->Find("a")->shape, ElementsAre(2, 2));
  EXPECT_EQ(content->Find("count")->bytes, b);
  EXPECT_TRUE(content->Find("count")->shape.empty());
  EXPECT_TRUE(content->Find("none")->bytes.empty());
  EXPECT_EQ(content->Find("other"), nullptr);
}

TEST(Safetensors, RefusesToWriteTensorsThatDoNotFitTheirShape) {
  EXPECT_FALSE(SafetensorsHead({{"w", "F32", {3}, "1234"}}, {}).has_value());
  EXPECT_FALSE(SafetensorsHead({{"w", "F31", {1}, "1234"}}, {}).has_value());
  EXPECT_FALSE(SafetensorsHead({{"w", "F32", {1}, "1234"}, {"w", "F32", {1}, "1234"}}, {}).has_value());
}

TEST(Safetensors, RefusesMalformedHeaders) {
  EXPECT_THAT(ErrorOf("1234"), HasSubstr("4 bytes only"));
  EXPECT_THAT(ErrorOf(std::string("\xff\xff\xff\xff\xff\xff\xff\xff{}", 10)), HasSubstr("claims"));
  EXPECT_THAT(ErrorOf(FileOf("[]", "")), HasSubstr("begin with '{'"));
  EXPECT_THAT(ErrorOf(FileOf("{\"a\":", "")), HasSubstr("no JSON object"));
  EXPECT_THAT(ErrorOf(FileOf(R"({"a":1})", "")), HasSubstr("lacks dtype"));
  EXPECT_THAT(ErrorOf(FileOf(R"({"__metadata__":{"a":1}})", "")), HasSubstr("no text"));
  EXPECT_THAT(ErrorOf(FileOf(R"({"a":{"dtype":"F99","shape":[],"data_offsets":[0,4]}})", "1234")),
              HasSubstr("unknown type 'F99'"));
  EXPECT_THAT(ErrorOf(FileOf(R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", "1234")),
              HasSubstr("no count"));
  EXPECT_THAT(
      ErrorOf(FileOf(
          R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
          "1")),
      HasSubstr("twice"));
}

TEST(Safetensors, RefusesTensorsThatLieWhereTheyMustNot) {
  EXPECT_THAT(ErrorOf(FileOf(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,8]}})", "1234")),
              HasSubstr("bytes 0 to 8 of 4"));
  EXPECT_THAT(ErrorOf(FileOf(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", "1234")),
              HasSubstr("do not fit its shape"));
  EXPECT_THAT(
      ErrorOf(FileOf(R"({"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]}})", "")),
      HasSubstr("do not fit its shape"));
  EXPECT_THAT(ErrorOf(FileOf(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})", "12")),
              HasSubstr("hole or an overlap"));
  EXPECT_THAT(
      ErrorOf(FileOf(
          R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
          "123")),
      HasSubstr("hole or an overlap"));
  EXPECT_THAT(ErrorOf(FileOf(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", "12")),
              HasSubstr("after the last"));
}

}  // namespace
}  // namespace imgd
