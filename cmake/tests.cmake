# imgd_test(NAME SOURCES a_test.cc ... LIBRARIES ... [LABELS ...]): one GoogleTest program, each test a ctest case.
include(GoogleTest)

function(imgd_test name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LIBRARIES;LABELS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_LIBRARIES} GTest::gmock GTest::gtest_main imgd_warnings)
  # Compiled once and run for seconds: less optimised than what is tested.
  target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:-O1>)
  gtest_discover_tests(${name} PROPERTIES LABELS "unit;${ARG_LABELS}" TIMEOUT 120 DISCOVERY_TIMEOUT 60)
endfunction()
