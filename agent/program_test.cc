#include "agent/program.h"

#include <gmock/gmock.h>

namespace imgd {
namespace {
}
}  // namespace imgd
