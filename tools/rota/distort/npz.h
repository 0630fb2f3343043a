#pragma once

#include "distort/bytes.h"
#include "distort/npy.h"
#include "distort/zip.h"
#include "rota/result.h"

// Arrays in what numpy.savez writes.

namespace rota::tool {

Result<NpyHeader> npz_header(const Bytes& file, const ZipEntry& entry);
Result<Array> read_npz_array(const Bytes& file, const ZipEntry& entry, const NpyHeader& header);

}  // namespace rota::tool
