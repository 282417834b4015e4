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

# RelWithDebInfo serves the sanitizers: stack traces with lines, quick to compile.
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O1 -g1 -fno-omit-frame-pointer")
if(IMGD_SANITIZER)
  add_compile_options(-fsanitize=${IMGD_SANITIZER} -fno-sanitize-recover=all)
  if(IMGD_SANITIZER MATCHES undefined)
    # A null or misplaced pointer traps by itself, or in the address sanitizer; the checks double the compile time.
    add_compile_options(-fno-sanitize=null,alignment)
  endif()
  add_link_options(-fsanitize=${IMGD_SANITIZER})
endif()

if(IMGD_FUZZ)
  # Our warnings are GCC's; clang has others.
  add_compile_options(-fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all -w)
  add_link_options(-fsanitize=address,undefined)
endif()

# imgd_unity(TARGETS...): compiles the sources of each a few at a time (none where IMGD_UNITY is 0). What they all
# include is most of the work, so this saves some two fifths of it; a change of one source still takes seconds.
set(IMGD_UNITY 4 CACHE STRING "Sources of our larger libraries that are compiled at once; 0: each by itself")
function(imgd_unity)
  if(NOT IMGD_UNITY OR CMAKE_UNITY_BUILD)
    return()
  endif()
  foreach(target IN LISTS ARGN)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${IMGD_UNITY})
    # A private class of one source looks like a header's.
    target_compile_options(${target} PRIVATE -Wno-subobject-linkage)
  endforeach()
endfunction()
