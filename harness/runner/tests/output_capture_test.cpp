#include "harness/runner/output_capture.hpp"

#include <gtest/gtest.h>

namespace fsdp_cts {
namespace {

TEST(OutputCapture, KeepsWhatFitsAsItIs) {
  OutputCapture capture(8, 8);
  capture.append("hello ");
  capture.append("wörld\n");
  EXPECT_EQ(capture.text(), "hello wörld\n");
}

TEST(OutputCapture, KeepsBeginningAndEndWhateverThePieces) {
  std::string all;
  for (int i = 0; i < 1000; ++i) all += std::to_string(i) + ",";
  for (const std::size_t piece : {std::size_t{1}, std::size_t{7}, std::size_t{64}, all.size()}) {
    OutputCapture capture(10, 20);
    for (std::size_t at = 0; at < all.size(); at += piece)
      capture.append(std::string_view(all).substr(at, piece));
    EXPECT_EQ(capture.total(), all.size());
    EXPECT_EQ(capture.text(), all.substr(0, 10) + "\n[… " + std::to_string(all.size() - 30) +
                                  " bytes left out …]\n" + all.substr(all.size() - 20))
        << "in pieces of " << piece;
  }
}

TEST(OutputCapture, ForgetsWhenCleared) {
  OutputCapture capture(2, 2);
  capture.append("abcdefgh");
  capture.clear();
  capture.append("xy");
  EXPECT_EQ(capture.text(), "xy");
}

TEST(Printable, LeavesUtf8AndShowsTheRestAsBytes) {
  EXPECT_EQ(printable("größer €😀\tx\n"), "größer €😀\tx\n");
  EXPECT_EQ(printable("\xff\xfe"), "\\xFF\\xFE");
  EXPECT_EQ(printable(std::string_view("a\0b\x1b[0m\x7f", 8)), "a\\x00b\\x1B[0m\\x7F");
  EXPECT_EQ(printable("\xc0\xaf"), "\\xC0\\xAF");                    // overlong
  EXPECT_EQ(printable("\xed\xa0\x80"), "\\xED\\xA0\\x80");           // a surrogate
  EXPECT_EQ(printable("\xf4\x90\x80\x80"), "\\xF4\\x90\\x80\\x80");  // beyond the last code point
  EXPECT_EQ(printable("\xe2\x82"), "\\xE2\\x82");                    // cut
}

}  // namespace
}  // namespace fsdp_cts
