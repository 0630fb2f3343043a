#include "gpu_cost/machine_code.h"

#include <gtest/gtest.h>

#include <stdexcept>

namespace rota::test {
namespace {

// A loop over rows with one over units inside, for both generations of names.
constexpr std::string_view kNew = R"(
BB0:
	s_mov_b32 s20, s2                                           ; be940002
	s_load_b128 s[20:23], s[20:21], 0x40                        ; f408050a f8000040
	s_load_b256 s[28:35], s[2:3], null                          ; f408050a f8000040
BB1:
	s_cmp_ge_u32 s4, s5                                         ; bf090f15
	s_cbranch_scc1 BB6                                          ; bfa20c55
BB2:
	v_cmpx_le_u32_e32 64, v1                                    ; 7d9602c0
	s_cbranch_execz BB5                                         ; bfa5003a
BB3:
	buffer_load_b128 v[4:7], v2, s[20:23], 0 offen              ; e05c0000 804c0402
	s_buffer_load_b32 s24, s[32:35], s24                        ; f420060e 30000000
	s_waitcnt vmcnt(1) lgkmcnt(0)                               ; bf8903f7
	ds_load_2addr_b32 v[2:3], v2 offset1:1                      ; d8d81940 02000002
	v_fmac_f32_e32 v4, v5, v6                                   ; 56080d05
	v_pk_fma_f16 v4, v5, v6, v7                                 ; cc0e4004
	s_branch BB2                                                ; bfa0ffbb
BB5:
	s_barrier                                                   ; bfbd0000
	s_branch BB1                                                ; bfa0ffbb
BB6:
	buffer_store_b32 v4, v2, s[28:31], 0 offen                  ; e0700000
	s_endpgm                                                    ; bfb00000
)";

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

std::string old_names() {
  std::string text = replaced(std::string(kNew), "s_load_b128", "s_load_dwordx4");
  text = replaced(text, "s_load_b256", "s_load_dwordx8");
  text = replaced(text, "buffer_load_b128", "buffer_load_dwordx4");
  text = replaced(text, "s_buffer_load_b32", "s_buffer_load_dword");
  text = replaced(text, "ds_load_2addr_b32", "ds_read2_b32");
  return replaced(text, "buffer_store_b32", "buffer_store_dword");
}

TEST(MachineCode, IsReadInBothSyntaxes) {
  for (const std::string& text : {std::string(kNew), old_names()}) {
    const MachineCode code = machine_code_of(text);
    ASSERT_EQ(code.blocks.size(), 6U);
    const auto& body = code.blocks[3].instructions;
    EXPECT_EQ(body[0].kind, Kind::vector_load);
    EXPECT_EQ(body[0].bytes, 16U);
    EXPECT_EQ(body[0].binding, 4U);
    EXPECT_EQ(body[0].depth, 2U);
    EXPECT_EQ(body[1].kind, Kind::scalar_load);
    EXPECT_EQ(body[1].binding, 1U);  // the second of two descriptors that were loaded together
    EXPECT_EQ(body[2].vector_loads_left, 1U);
    EXPECT_EQ(body[2].others_left, 0U);
    EXPECT_EQ(body[3].kind, Kind::shared_load);
    EXPECT_EQ(body[3].bytes, 8U);
    EXPECT_EQ(body[4].products, 1U);
    EXPECT_EQ(body[5].products, 2U);
    EXPECT_EQ(code.blocks[4].instructions[0].kind, Kind::barrier);
    EXPECT_EQ(code.blocks[5].instructions[0].kind, Kind::vector_store);
  }
}

TEST(MachineCode, FindsLoopsAndTheirNesting) {
  const MachineCode code = machine_code_of(kNew);
  ASSERT_EQ(code.loops.size(), 2U);
  EXPECT_EQ(code.loops[0].first, 1U);
  EXPECT_EQ(code.loops[0].last, 4U);
  EXPECT_FALSE(code.loops[0].by_lanes);
  EXPECT_EQ(code.loops[1].first, 2U);
  EXPECT_EQ(code.loops[1].last, 3U);
  EXPECT_EQ(code.loops[1].parent, 0U);
  EXPECT_TRUE(code.loops[1].by_lanes);
  EXPECT_EQ(code.loop_of(3), 1U);
  EXPECT_EQ(code.loop_of(4), 0U);
  EXPECT_EQ(code.loop_of(5), std::nullopt);
}

TEST(MachineCode, DoesNotGuessABinding) {
  // Written over on one of two ways, by an instruction that is no load, or loaded from where nobody can tell.
  for (const auto& [from, to] :
       {std::pair("v_cmpx_le_u32_e32 64, v1 ", "s_add_u32 s21, s21, s12 "),
        std::pair("s_load_b128 s[20:23], s[20:21], 0x40", "s_load_b128 s[20:23], s[20:21], s9"),
        std::pair("s_load_b128 s[20:23], s[20:21], 0x40", "s_load_b128 s[20:23], s[20:21], 0x44")}) {
    const MachineCode code = machine_code_of(replaced(std::string(kNew), from, to));
    EXPECT_EQ(code.blocks[3].instructions[0].binding, std::nullopt) << to;
  }
}

TEST(MachineCode, TakesTheLongerSideOfACondition) {
  const MachineCode code = machine_code_of(R"(
BB0:
	s_cmp_ge_u32 s4, s5
	s_cbranch_scc0 BB2
BB1:
	v_add_f32_e32 v1, v2, v3
	s_branch BB3
BB2:
	v_add_f32_e32 v1, v2, v3
	v_add_f32_e32 v1, v2, v3
	v_add_f32_e32 v1, v2, v3
BB3:
	s_endpgm
)");
  EXPECT_TRUE(code.blocks[1].is_passed_by);
  EXPECT_FALSE(code.blocks[2].is_passed_by);
  EXPECT_FALSE(code.blocks[3].is_passed_by);
  EXPECT_TRUE(code.is_conditional(1));
  EXPECT_FALSE(code.is_conditional(3));
}

TEST(MachineCode, ThatIsNoneIsAnError) {
  EXPECT_THROW(machine_code_of(""), std::runtime_error);
  EXPECT_THROW(machine_code_of("\ts_endpgm\n"), std::runtime_error);
  EXPECT_THROW(machine_code_of("BB0:\n\ts_branch BB7\n"), std::runtime_error);
  EXPECT_THROW(machine_code_of("BB0:\n\ts_waitcnt 0x3f70\n"), std::runtime_error);
  EXPECT_THROW(machine_code_of("BB0:\n\ts_nop 0\nBB1:\n\ts_cbranch_scc0 BB0\nBB2:\n\ts_cbranch_scc0 BB1\n"),
               std::runtime_error);
}

}  // namespace
}  // namespace rota::test
