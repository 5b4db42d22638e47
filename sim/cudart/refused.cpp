// The functions of the real library that are not covered. They are exported, so that a program that
// refers to one can start, and say their name when they are called. Their declarations are left out
// on purpose: they look at no argument.

namespace lockstep::cudart {
int refuse_by_name(const char* function);
}

#define REFUSED(name)                               \
  extern "C" int name() {                           \
    return lockstep::cudart::refuse_by_name(#name); \
  }
#include "refused.inc"
#undef REFUSED
