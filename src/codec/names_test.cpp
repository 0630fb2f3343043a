#include <gtest/gtest.h>

#include "rota/kv_spec.h"

namespace rota::test {
namespace {

TEST(CodecNames, ComeBackAsTheirCodecs) {
  for (const NamedCodec& known : kCodecs) {
    EXPECT_EQ(name(known.codec), known.name);
    EXPECT_EQ(codec_named(known.name).value(), known.codec);
  }
}

TEST(CodecNames, TellOfATurboOnlyTheBits) {
  EXPECT_EQ(name(KvCodec(Turbo{.bits = 4, .scale = ScaleRule::rms, .key_mean = false, .seed = 1})), "turbo4");
}

TEST(CodecNames, OfWhatIsNoCodec) {
  EXPECT_EQ(name(KvCodec(turbo(7))), "?");
  EXPECT_EQ(name(KvCodec(static_cast<DType>(99))), "?");
  for (const char* wrong : {"", "q4_0", "turbo", "turbo7", "turbo44", "F16", "f16 "}) {
    const auto codec = codec_named(wrong);
    ASSERT_FALSE(codec.ok()) << wrong;
    EXPECT_EQ(codec.error().code, Errc::invalid_argument);
    EXPECT_NE(codec.error().message.find("bf16, turbo2"), std::string::npos) << codec.error().message;
  }
}

}  // namespace
}  // namespace rota::test
