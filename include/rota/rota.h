#pragma once

#include "rota/buffer.h"
#include "rota/codec.h"
#include "rota/device.h"
#include "rota/dtype.h"
#include "rota/encoder.h"
#include "rota/ops.h"
#include "rota/result.h"
#include "rota/selftest.h"
#include "rota/token_run.h"
#include "rota/version.h"
#include "rota/view.h"
