#include "harness/protocol/frame.hpp"

#include <gtest/gtest.h>

#include "harness/protocol/utf8.hpp"

namespace fsdp_cts {
namespace {

std::string framed(std::string_view body) {
  std::string frame;
  for (int i = 0; i < 4; ++i) frame += static_cast<char>(body.size() >> (8 * i) & 0xff);
  return frame.append(body);
}

std::string code_of(const std::string& bytes) {
  FrameDecoder decoder;
  decoder.feed(bytes);
  try {
    return decoder.next() ? "accepted" : "incomplete";
  } catch (const FrameError& e) {
    return e.code;
  }
}

TEST(Frame, WritesLengthLittleEndianThenJson) {
  EXPECT_EQ(encode_frame({{"type", "bye"}}), std::string("\x0e\0\0\0", 4) + R"({"type":"bye"})");
}

TEST(Frame, ANumberThatFitsNoTypeIsMalformed) {
  EXPECT_EQ(code_of(framed(R"({"type": "done", "case": 1e999})")), "malformed_json");
}

TEST(Frame, SurvivesAnyCut) {
  const Json first = {{"type", "done"}, {"case", 7}};
  const Json second = {{"type", "progress"}, {"verb", "größer"}};
  const std::string stream = encode_frame(first) + encode_frame(second);
  for (std::size_t cut = 0; cut <= stream.size(); ++cut) {
    FrameDecoder decoder;
    std::vector<Json> messages;
    for (const std::string& part : {stream.substr(0, cut), stream.substr(cut)}) {
      decoder.feed(part);
      while (auto message = decoder.next()) messages.push_back(*message);
    }
    EXPECT_EQ(messages, (std::vector<Json>{first, second})) << "cut after " << cut;
    EXPECT_FALSE(decoder.inside_frame());
  }
}

TEST(Frame, KnowsThatItIsInsideAFrameAndWhatIsMissing) {
  FrameDecoder decoder;
  EXPECT_EQ(decoder.wanted(), 4u);
  decoder.feed(std::string("\x0e\0\0\0{\"ty", 8));
  EXPECT_EQ(decoder.next(), std::nullopt);
  EXPECT_TRUE(decoder.inside_frame());
  EXPECT_EQ(decoder.wanted(), 10u);
}

TEST(Frame, RefusesEveryLieWithItsOwnCode) {
  EXPECT_EQ(code_of(framed(R"({"type":"done"})")), "accepted");
  EXPECT_EQ(code_of(std::string("\0\0\0\0", 4)), "empty_frame");
  EXPECT_EQ(code_of(std::string("\x01\0\0\x01", 4)), "oversize_frame");
  EXPECT_EQ(code_of(std::string("\0\0\0\x01", 4)), "incomplete");  // 16 MiB exactly is allowed
  EXPECT_EQ(code_of("\xff\xff\xff\xff"), "oversize_frame");
  EXPECT_EQ(code_of(framed("hello")), "malformed_json");
  EXPECT_EQ(code_of(framed(R"({"type":"done"} x)")), "malformed_json");
  EXPECT_EQ(code_of(framed("{\"type\":\"\xff\"}")), "malformed_json");
  EXPECT_EQ(code_of(framed("[1]")), "not_an_object");
  EXPECT_EQ(code_of(framed("{}")), "no_type");
  EXPECT_EQ(code_of(framed(R"({"type":3})")), "no_type");
  EXPECT_EQ(code_of(framed(std::string(1 << 20, '['))), "too_deep");
  EXPECT_EQ(code_of(framed(R"({"type":")" + std::string(100, '[') + R"("})")),
            "accepted");  // brackets in a string
}

TEST(Frame, RefusesToSendWhatTheOtherSideWouldRefuse) {
  EXPECT_THROW(encode_frame({{"type", "x"}, {"y", "\xff"}}), FrameError);
  EXPECT_THROW(encode_frame({{"type", std::string(max_frame_bytes, 'x')}}), FrameError);
}

TEST(Utf8, AShortenedTextCanBeSent) {
  EXPECT_EQ(shortened("no name: \xff\xfe, \xc3\xa9", 80), "no name: \xef\xbf\xbd\xef\xbf\xbd, \xc3\xa9");
  EXPECT_EQ(shortened("ab\xc3\xa9", 3), "ab…");  // between characters
  EXPECT_EQ(shortened("\xff\xff\xff", 4), "\xef\xbf\xbd…");
  EXPECT_NO_THROW(encode_frame({{"type", "x"}, {"y", shortened("\xff", 80)}}));
}

}  // namespace
}  // namespace fsdp_cts
