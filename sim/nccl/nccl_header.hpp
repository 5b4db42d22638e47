// NCCL's own header. Everything in the library is hidden but what that header declares.
#pragma once

#pragma GCC visibility push(default)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpedantic"
#pragma GCC diagnostic ignored "-Wunused-parameter"
#include <nccl.h>
#pragma GCC diagnostic pop
#pragma GCC visibility pop
