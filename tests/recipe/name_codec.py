#!/usr/bin/env python3
"""name_codec.py TREE: names the codec Even where CONTRIBUTING.md says that a codec is named."""

import pathlib
import sys

tree = pathlib.Path(sys.argv[1])


def put(path, before, after):
    file = tree / path
    text = file.read_text()
    if text.count(before) != 1:
        sys.exit(f"{path}: {before!r} is there {text.count(before)} times")
    file.write_text(text.replace(before, after))


codec = """struct Even {
  Required<std::uint32_t> bits;  // 4
  bool key_mean = false;

  constexpr bool has_mean(KvSide side) const noexcept { return side == KvSide::keys && key_mean; }
  friend constexpr bool operator==(const Even&, const Even&) = default;
};

"""
put("include/rota/codec.h", "using Codec = std::variant<Turbo>;", "using Codec = std::variant<Turbo, Even>;")
put("include/rota/codec.h", "// The codecs of sealed pages.", codec + "// The codecs of sealed pages.")
put("include/rota/kv_spec.h", "std::variant<DType, Turbo>", "std::variant<DType, Turbo, Even>")
put("include/rota/kv_spec.h", 'NamedCodec{"turbo8", turbo(8)},', 'NamedCodec{"turbo8", turbo(8)}, NamedCodec{"even4", Even{.bits = 4}},')
put("src/codec/codecs.cpp", '#include "codec/turbo/turbo.h"', '#include "codec/even/even.h"\n#include "codec/turbo/turbo.h"')
