# The compiler cache and the linker, and the sanitizers' flags.
find_program(CCACHE ccache)
if(CCACHE)
  # A precompiled header is cached too when its time stamps are not looked at.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env
      CCACHE_SLOPPINESS=locale,pch_defines,time_macros,include_file_mtime,include_file_ctime
      CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${CCACHE})
  add_compile_options($<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fpch-preprocess>)
endif()

find_program(MOLD mold)
if(MOLD)
  add_link_options(-fuse-ld=mold)
endif()

# What decodes and resizes is compiled with -O3 besides.
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")

# imgd_runs_once(SOURCES...): quick to compile rather than fast; for what reads the command line. Not -O0: of an inline
# function that several objects have the linker takes the first one's copy for the whole program, and main's comes first.
function(imgd_runs_once)
  set_source_files_properties(${ARGN} PROPERTIES COMPILE_OPTIONS "$<$<CONFIG:Release>:-O1>")
endfunction()

# RelWithDebInfo serves the sanitizers: stack traces with lines, quick to compile.
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O1 -g1 -fno-omit-frame-pointer")
if(IMGD_SANITIZER)
  add_compile_options(-fsanitize=${IMGD_SANITIZER} -fno-sanitize-recover=all)
  if(IMGD_SANITIZER MATCHES undefined)
    # A null pointer traps by itself, or in the address sanitizer; the checks double the compile time. Misaligned ones are
    # not found: x86 reads them all the same. Files and messages are read by memcpy, not through such pointers.
    add_compile_options(-fno-sanitize=null,alignment)
  endif()
  add_link_options(-fsanitize=${IMGD_SANITIZER})
endif()

if(IMGD_FUZZ)
  # Our warnings are GCC's; clang has others.
  add_compile_options(-fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all -w)
  add_link_options(-fsanitize=address,undefined)
endif()
