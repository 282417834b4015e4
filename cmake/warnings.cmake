# Warnings for our own code; link imgd_warnings PRIVATE. Generated code and others' headers go without.
add_library(imgd_warnings INTERFACE)
target_compile_options(imgd_warnings INTERFACE -Wall -Wextra -Wconversion -Werror
  # A designated initialiser leaves the rest at their defaults; that is what it is for.
  -Wno-missing-field-initializers
  # Where several sources are compiled at once, a private class of one looks like a header's.
  $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
if(IMGD_SANITIZER)
  # GCC 12 sees uses that cannot happen in instrumented code.
  target_compile_options(imgd_warnings INTERFACE -Wno-maybe-uninitialized -Wno-tsan)
endif()
