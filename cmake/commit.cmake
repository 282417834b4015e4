# imgd_commit: the git commit of the sources (common/commit.h), asked for at each build; -DIMGD_COMMIT=TEXT where there
# is no git, as in a package's build.
set(IMGD_COMMIT "" CACHE STRING "The sources' commit; empty: ask git at each build")

set(commit_file "${PROJECT_BINARY_DIR}/generated/common/commit.cc")
add_custom_target(imgd_ask_commit
  COMMAND "${CMAKE_COMMAND}" "-DSOURCE=${PROJECT_SOURCE_DIR}" "-DCOMMIT=${IMGD_COMMIT}" "-DFILE=${commit_file}"
    -P "${PROJECT_SOURCE_DIR}/cmake/ask_commit.cmake"
  BYPRODUCTS "${commit_file}"
  COMMENT "Asking git for the commit")
add_library(imgd_commit STATIC "${commit_file}")
target_include_directories(imgd_commit PUBLIC "${PROJECT_SOURCE_DIR}")
add_dependencies(imgd_commit imgd_ask_commit)
